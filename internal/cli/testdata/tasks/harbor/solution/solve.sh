#!/bin/bash
set -euo pipefail
test "$HINT" = sorted
PATH="$TOOL_PATH" uniq-sort words.txt | while read -r word; do echo "$word,${#word}"; done > lengths.csv
