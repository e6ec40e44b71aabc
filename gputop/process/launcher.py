"""Starts one of gputop's programs by the absolute path of this file.

``python -I LAUNCHER MODULE[:NAME] ARGUMENTS…``, with NAME as the program's name in its own messages. With -I
neither the working folder nor the environment can inject code; gputop's packages are those beside this file,
installed or not, and nothing else is imported from that folder.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("gputop", "replay", "probes")


def _import(package: str) -> None:
    """Import a package from the folder beside ours, without a search that could find another one."""
    folder = _ROOT / package
    spec = spec_from_file_location(package, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is no package")
    sys.modules[package] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def main() -> int:
    """Run the named program and return its exit status."""
    module, _, name = sys.argv.pop(1).partition(":")
    sys.argv[0] = name or sys.argv[0]
    for package in _PACKAGES:
        _import(package)
    status: int = import_module(f"{module}.__main__").main()
    return status


if __name__ == "__main__":
    sys.exit(main())
