#!/usr/bin/env bash
# Prints which Python the checkout's environments are made of, where PYTHON names none: the distribution's, if it is new
# enough and can make one, else what python3 is. bcc is a package of the distribution's, and what a user builds for
# himself (pyenv) is seldom compiled with profiles: it takes a fifth longer for the same.
set -euo pipefail

distribution=/usr/bin/python3
if "$distribution" -I -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
	printf '%s\n' "$distribution"
else
	printf 'python3\n'
fi
