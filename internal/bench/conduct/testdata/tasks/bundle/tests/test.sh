#!/bin/bash
set -eu
cd /app
tar -tzf bundle.tar.gz | grep -q parts/beta.txt
diff -u /tests/expected.txt SHA256SUMS
