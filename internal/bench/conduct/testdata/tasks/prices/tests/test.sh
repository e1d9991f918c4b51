#!/bin/bash
set -eu
cd /app
diff -u /tests/expected.txt sums.csv
