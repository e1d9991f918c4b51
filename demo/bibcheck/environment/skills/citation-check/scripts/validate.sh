#!/bin/bash
# usage: validate.sh ANSWER.json FILE.bib: checks the form of an answer.
set -u
answer=$1 bib=$2
grep -q '"fabricated"' "$answer" || { echo "$answer: no member named fabricated"; exit 1; }
keys=$(sed -e 's/.*\[//' -e 's/\].*//' "$answer" | tr ',' '\n' | tr -d '" ')
for key in $keys; do
	grep -q "{$key," "$bib" || { echo "$key is no entry of $bib"; exit 1; }
done
echo "the answer is well formed: $(echo "$keys" | wc -l) entries"
