#!/bin/bash
# Nine tests of the answer. Reward 1 where all pass, 0 otherwise.
set -u
answer=/root/work/answer.json bib=/root/work/refs.bib
mkdir -p /logs/verifier
passed=0 total=0
check() { # name, command …
	total=$((total + 1))
	if "${@:2}" >/dev/null 2>&1; then
		passed=$((passed + 1)); echo "ok   $1"
	else
		echo "FAIL $1"
	fi
}
keys() { tr -d '\n' <"$answer" | sed -e 's/.*\[//' -e 's/\].*//' | tr ',' '\n' | tr -d '" \t'; }
one_member() { [ "$(grep -o '"[a-z_]*"[[:space:]]*:' "$answer" | wc -l)" = 1 ]; }
sorted() { [ "$(keys)" = "$(keys | sort)" ]; }
known() { for k in $(keys); do grep -q "{$k," "$bib" || return 1; done; }
has() { keys | grep -qx "$1"; }
count() { [ "$(keys | grep -c .)" = 4 ]; }
untouched() { [ "$(cksum <"$bib")" = "4229828473 2158" ]; }
check "the answer exists" test -s "$answer"
check "it has one member" one_member
check "the keys are sorted" sorted
check "every key is an entry" known
check "harrow2011ledger is found" has harrow2011ledger
check "okafor2019provenance is found" has okafor2019provenance
check "vance2022witness and brandt1999sealed are found" eval 'has vance2022witness && has brandt1999sealed'
check "there are four, no real work among them" count
check "the bibliography was not changed" untouched
echo "$passed of $total passed"
if [ "$passed" = "$total" ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
