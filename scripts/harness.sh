#!/bin/sh
# Installs a harness, or a server that the tests need, from npm into .harness, at the version that the tests know.
# Usage: harness.sh codex|claude-code|gemini-cli|anvil|gemini-a2a|mcp-everything|mcp-filesystem
set -eu
cd "$(dirname "$0")/.."
case ${1:-codex} in
codex) pkg=@openai/codex version=0.171.0 size=425 ;;
claude-code) pkg=@anthropic-ai/claude-code version=2.1.332 size=385 ;;
gemini-cli) pkg=@google/gemini-cli version=0.61.0 size=100 ;;
anvil) pkg=@foundry-rs/anvil version=1.7.1 size=45 ;;
mcp-everything) pkg=@modelcontextprotocol/server-everything version=2026.8.31 size=35 ;;
gemini-a2a) pkg=@google/gemini-cli-a2a-server version=0.25.2 size=475 ;;
mcp-filesystem) pkg=@modelcontextprotocol/server-filesystem version=2026.8.31 size=5 ;;
*) echo "unknown harness ${1:-}: codex, claude-code, gemini-cli, anvil, gemini-a2a, mcp-everything, mcp-filesystem" >&2; exit 2 ;;
esac
have=$(sed -n 's/.*"version": "\(.*\)".*/\1/p' ".harness/node_modules/$pkg/package.json" 2>/dev/null || true)
[ "$have" = "$version" ] && exit 0
command -v npm >/dev/null 2>&1 || { echo "npm is needed to install $pkg: apt-get install npm" >&2; exit 3; }
echo "installing with npm into .harness: $pkg@$version (about $size MB on disk)"
npm install --silent --no-fund --no-audit --prefix .harness "$pkg@$version" >/dev/null
