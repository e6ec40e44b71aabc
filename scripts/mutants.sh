#!/usr/bin/env bash
# Changes the code in small wrong ways and looks whether the tests notice: tests/mutants. cosmic-ray, which makes the
# changes, has a virtual environment of its own; the tests run in the project's.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/mutation python=${PYTHON:-$(scripts/python.sh)}
if ! $venv/bin/python -c 'import cosmic_ray' 2>/dev/null; then
	"$python" -c 'import tomllib' 2>/dev/null || {
		printf 'mutants: Python 3.11 or newer is needed: make mutants PYTHON=python3.11\n' >&2
		exit 1
	}
	"$python" -m venv --clear $venv
	$venv/bin/python -m pip --disable-pip-version-check install --quiet 'cosmic-ray>=8' >&2 </dev/null || {
		printf 'mutants: pip could not install cosmic-ray: is there a network?\n' >&2
		exit 1
	}
fi
exec nice -n 10 $venv/bin/python -m tests.mutants "$@"
