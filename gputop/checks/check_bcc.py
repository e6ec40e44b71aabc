"""bcc, which compiles the probes, and PyPI's unrelated package of that name."""

from __future__ import annotations

import importlib.machinery
from dataclasses import asdict, dataclass
from pathlib import Path

from gputop.checks.distribution import Distribution
from gputop.checks.fact import Section, missing, note, ok
from probes.ebpf.build import compiler


@dataclass(frozen=True, slots=True)
class Bcc:
    """The bcc installation."""

    path: str  # folder of the Python module, or ``""``
    version: str  # its version, or ``""``
    library: str  # the native library behind it, or ``""``
    error: str  # why it cannot be used, or ``""``
    unrelated: str  # folder of another package named bcc in this interpreter's path, or ``""``


def find_unrelated(search: list[str] | None = None) -> str:
    """Return the folder of a package named bcc in the interpreter's path that is not the BPF compiler's."""
    spec = importlib.machinery.PathFinder.find_spec("bcc", search)
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or [])
    if any(Path(folder, "libbcc.py").exists() for folder in folders):
        return ""
    return folders[0] if folders else str(spec.origin or "")


def mapped_library(prefix: str) -> str:
    """Return the path of a library that this process has loaded, by the beginning of its name."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    paths = (line.split(None, 5)[5] for line in lines if line.count("/"))
    return next((path for path in paths if path.rpartition("/")[2].startswith(prefix)), "")


def read_bcc() -> Bcc:
    """Import bcc as the probes' compiler does, and describe it."""
    unrelated = find_unrelated()
    try:
        module = compiler.import_bcc()
    except compiler.NoBccError as error:
        return Bcc("", "", "", str(error), unrelated)
    path = str(Path(module.__file__ or "").parent)
    return Bcc(path, str(getattr(module, "__version__", "")), mapped_library("libbcc.so"), "", unrelated)


def bcc_section(bcc: Bcc, distribution: Distribution) -> Section:
    if bcc.error:
        facts = [missing(bcc.error.partition(": apt-get")[0], distribution.install_bcc)]
    else:
        facts = [ok(f"bcc {bcc.version} in {bcc.path}")]
    if bcc.unrelated:
        facts.append(
            note(
                f"{bcc.unrelated} is PyPI's bcc, an unrelated package: it is skipped",
                "pip uninstall bcc, if nothing else needs it",
            )
        )
    return Section("bcc", tuple(facts), asdict(bcc))
