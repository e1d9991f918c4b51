#!/bin/sh
# The demo. What did it really do? One task, run three times and recorded. The model is a script, so it needs no key and
# costs nothing.
#   1  the agent follows the citation skill
#   2  the agent ignores it
#   3  the skill is compromised: its validation script reads an SSH key (a decoy) and posts it to a host that nobody
#      declared (a stand-in inside the sandbox's network) before it does what one expects
#   4  the three compared
# Can anyone trust the record?
#   5  the third run's record verified, and a copy of it that somebody edited
# Is it what it claims to be?
#   6  an agent that declares weather reports, and runs a shell besides, is audited in the sandbox
set -eu
cd "$(dirname "$0")/.."
agent=${AGENT:-builtin}
bodycam=${BODYCAM:-bin/bodycam}
runs=${RUNS:-runs/demo}
[ -x "$bodycam" ] || { echo "build first: make build" >&2; exit 2; }
case $agent in builtin) ;; *) sh scripts/harness.sh "$agent" ;; esac

work=$(mktemp -d)
lookup=
clean() {
	[ -z "$lookup" ] || kill "$lookup" 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

${GO:-go} build -o "$work/lookup" ./demo/lookup
"$work/lookup" >"$work/address" &
lookup=$!
while [ ! -s "$work/address" ]; do sleep 0.05; done
address=$(cat "$work/address")

cp -r demo/bibcheck "$work/compromised"
cp demo/compromised/validate.sh "$work/compromised/environment/skills/citation-check/scripts/validate.sh"

record() { # title, task, script
	printf '\n──── %s ────\n\n' "$1"
	status=0
	"$bodycam" run "$2" --agent "$agent" --model scripted --model-script "$3" --network sink \
		--forward "citations.example:80=$address" -q --out "$runs" --fail-on critical || status=$?
	case $status in
	0) ;;
	1) echo "(exit status 1: a finding reaches --fail-on)" ;;
	4) echo "(exit status 4: the record is incomplete)" ;;
	*) exit "$status" ;;
	esac
}

# expect runs a command that has to end with the given status: what the demo tells of is not to be taken on trust.
expect() { # status, command…
	want=$1 status=0
	shift
	"$@" >"$work/out" || status=$?
	[ "$status" = "$want" ] && return
	cat "$work/out"
	echo "demo: exit status $status instead of $want: $*" >&2
	exit 3
}
record "1: the agent follows the skill" demo/bibcheck demo/model/follow.yaml
record "2: the agent ignores the skill" demo/bibcheck demo/model/ignore.yaml
record "3: the same task and agent, but the skill is compromised" "$work/compromised" demo/model/follow.yaml

latest=$(ls -d "$runs"/[0-9]* | tail -3)

printf '\n──── 4: the three compared ────\n\n'
expect 0 "$bodycam" compare $latest
sed -n '/^SIMILARITY/,/^DIFFERENCES/{/^DIFFERENCES/!p}' "$work/out"

third=$(echo "$latest" | tail -1)
printf '──── 5: the third record verified, and a copy of which one byte was changed ────\n\n'
expect 0 "$bodycam" verify "$third"
cat "$work/out"
cp -r "$third" "$work/edited"
printf x | dd of="$work/edited/ledger/00000000.log" bs=1 seek=1500 conv=notrunc status=none
expect 1 "$bodycam" verify "$work/edited"
echo
sed -n '/^TAMPERED/,/^  order/{/^  order/!p}' "$work/out"
echo "  …"

printf '\n──── 6: an agent that declares weather reports, audited in the sandbox ────\n\n'
mkdir "$work/agent"
${GO:-go} build -trimpath -o "$work/agent/weather-agent" ./internal/trust/liars/liar
expect 1 "$bodycam" probe --port 8080 --ready /health --traces otlp --probes 5 --settle 50ms -q -o "$runs/audits" \
	--workspace "$work/agent" -- ./weather-agent --agent hides-span
sed -n '1,/^    why:/p' "$work/out"
echo "  …"
tail -1 "$work/out"

cat <<END

In the third run the transcript tells of one call of validate.sh, as in the first. The record shows what that script did.
Look closer with
    $bodycam show RUN --all
    $bodycam events RUN --json
    $bodycam check RUN
END
