#!/bin/sh
# Runs every fuzz target for FUZZTIME (5s by default).
set -eu
cd "$(dirname "$0")/.."
grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -h -o '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | while read -r f; do
		echo "$dir $f"
		go test "$dir" -run '^$' -fuzz "^$f\$" -fuzztime "${FUZZTIME:-5s}" >/tmp/fuzz.$$ 2>&1 || { cat /tmp/fuzz.$$; exit 1; }
	done
done
rm -f /tmp/fuzz.$$
