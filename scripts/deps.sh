#!/bin/sh
# Installs what tests (test), generated files (generate) or benchmarks (bench) need, by package name. It says what it
# installs, and installs nothing that is there already.
set -eu
cd "$(dirname "$0")/.."
want=${1:-test}

missing=
need() { # command, apt package
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
file() { # file, apt package
	[ -e "$1" ] || missing="$missing $2"
}
case $want in
test)
	need gcc gcc; need python3 python3; need git git; need strace strace; need curl curl; need npm npm; need openssl openssl
	need ip iproute2; need nft nftables; need clang-19 clang-19; need llvm-strip-19 llvm-19
	file /usr/include/bpf/bpf_helpers.h libbpf-dev
	file /usr/include/x86_64-linux-gnu/asm/unistd_64.h linux-libc-dev
	file /usr/include/stdio.h libc6-dev
	file /usr/lib/python3/dist-packages/pytest python3-pytest
	python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
	;;
generate) need clang-19 clang-19; need llvm-strip-19 llvm-19; file /usr/include/bpf/bpf_helpers.h libbpf-dev ;;
bench) need strace strace; need auditd auditd; need git git; need gcc gcc ;;
*) echo "usage: deps.sh test|generate|bench" >&2; exit 2 ;;
esac
if [ -n "$missing" ]; then
	echo "installing with apt:$missing"
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	$sudo apt-get update -qq
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
if [ "$want" = test ]; then
	[ -d .harness/node_modules ] && [ -d .harness/venv ] ||
		echo "the tests need real agent programs and servers: about 1.8 GB on disk in .harness, downloaded once"
	for pkg in codex claude-code gemini-cli anvil mcp-everything mcp-filesystem gemini-a2a; do sh scripts/harness.sh "$pkg"; done
	sh scripts/mlflow.sh
fi
