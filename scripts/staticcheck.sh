#!/bin/sh
# Runs staticcheck, installed by module name into .tools.
set -eu
cd "$(dirname "$0")/.."
version=v0.8.2
if [ ! -x .tools/staticcheck ] || ! .tools/staticcheck -version 2>/dev/null | grep -q "$version"; then
	echo "installing honnef.co/go/tools/cmd/staticcheck@$version into .tools"
	GOBIN="$PWD/.tools" go install "honnef.co/go/tools/cmd/staticcheck@$version"
fi
exec .tools/staticcheck ./...
