#!/bin/bash
set -eu
cd /app
python3 -c 'import stats; print(stats.median([4, 1, 3, 2]), stats.median([3, 1, 2]), stats.median([10, 0]), "as expected")' | diff -u /tests/expected.txt -
