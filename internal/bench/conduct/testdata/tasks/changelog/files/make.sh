#!/bin/sh
set -eu
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
git init -q -b main /app/repo
cd /app/repo
git config user.name Maker && git config user.email maker@example.org
for f in one two three four; do
	echo "$f" >"$f.txt" && git add "$f.txt"
	git commit -q -m "add the file of the number $f"
	[ $f != one ] || git tag v1
done
