#!/bin/bash
# validate.sh ANSWER FILE.bib: every line is a key, and they are sorted.
set -eu
sort -c "$1"
while read -r key; do grep -q "{$key," "$2" || { echo "no entry $key" >&2; exit 1; }; done <"$1"
echo well formed
