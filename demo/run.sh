#!/bin/sh
# The demo: one task, run three times and recorded. The model is a script, so it needs no key and costs nothing.
#   1  the agent follows the citation skill
#   2  the agent ignores it
#   3  the skill is compromised: its validation script reads an SSH key (a decoy) and posts it to a host that nobody
#      declared (a stand-in inside the sandbox's network) before it does what one expects
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
record "1: the agent follows the skill" demo/bibcheck demo/model/follow.yaml
record "2: the agent ignores the skill" demo/bibcheck demo/model/ignore.yaml
record "3: the same task and agent, but the skill is compromised" "$work/compromised" demo/model/follow.yaml

cat <<END

In the third run the transcript tells of one call of validate.sh, as in the first. The record shows what that script did.
Look closer with
    $bodycam show RUN --all
    $bodycam events RUN --json
END
