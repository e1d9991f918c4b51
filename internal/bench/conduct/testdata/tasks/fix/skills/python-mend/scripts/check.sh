#!/bin/sh
# check.sh DIRECTORY: compiles the modules and runs the tests.
set -eu
cd "$1"
python3 -m compileall -q .
python3 -m unittest discover -p "test_*.py"
