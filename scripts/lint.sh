#!/usr/bin/env bash
# Style, types, the direction of imports, layout and names. Runs all of them, then says whether one failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export PATH="$PWD/.venv/bin:$PATH"
failed=()

check() {
	printf '== %s\n' "$*"
	"$@" || failed+=("$*")
}

check ruff check .
check ruff format --check --exclude '*.md' gputop probes replay tests scripts
check mypy
check lint-imports
check python3 -m scripts.layout
if command -v shellcheck >/dev/null; then
	check shellcheck scripts/*.sh .ci/run
fi
[ ${#failed[@]} -eq 0 ] || {
	printf 'lint: failed: %s\n' "${failed[@]}"
	exit 1
}
