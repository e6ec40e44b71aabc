#!/usr/bin/env bash
# Style, types, the direction of imports, the length of files. Runs all of them, then says whether one failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export PATH="$PWD/.venv/bin:$PATH"
max_lines=600
failed=()

check() {
	printf '== %s\n' "$*"
	"$@" || failed+=("$*")
}

short_files() {
	local long
	long=$(find gputop probes replay tests -name '*.py' -exec wc -l {} + |
		awk -v max=$max_lines '$2 != "total" && $1 > max { print $2 ": " $1 " lines" }')
	[ -z "$long" ] || {
		printf '%s\n' "$long"
		return 1
	}
}

check ruff check .
check ruff format --check --exclude '*.md' gputop probes replay tests scripts
check mypy
check lint-imports
check short_files
if command -v shellcheck >/dev/null; then
	check shellcheck scripts/*.sh .ci/run
fi
[ ${#failed[@]} -eq 0 ] || {
	printf 'lint: failed: %s\n' "${failed[@]}"
	exit 1
}
