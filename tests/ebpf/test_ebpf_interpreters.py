"""bcc is the distribution's, made for its own Python; gputop loads programs with it under each of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from recording import TIMEOUT_S

pytestmark = pytest.mark.ebpf

ROOT = Path(__file__).resolve().parents[2]
# numpy is another wheel for each Python and has no part in this, as the layout of records that it describes
LOAD = """
import os, sys
from unittest.mock import MagicMock
for name in ("numpy", "numpy.typing", "probes.schema"):
    sys.modules[name] = MagicMock()
from probes import loader
bcc = loader.import_bcc()
os.environ["BCC_KERNEL_SOURCE"] = str(loader.SHIM)
program = bcc.BPF(text=b"BPF_ARRAY(counts, u64, 1); int probe(void *context) { return 0; }")
assert program.load_func(b"probe", bcc.BPF.KPROBE).fd >= 0
assert program[b"counts"].map_fd >= 0
print(sys.version_info.minor, bcc.__file__)
"""


def interpreter(minor: int) -> str | None:
    """A Python of that version, in the search path or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in (*sorted(versions.glob(f"3.{minor}.*/bin/python3")), shutil.which(f"python3.{minor}")):
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_the_distributions_bcc_works_under_each_python(minor: int, tmp_path: Path) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} on this machine")
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    done = subprocess.run(
        [str(tmp_path / "env/bin/python"), "-c", LOAD],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, _, found = done.stdout.strip().partition(" ")
    assert int(version) == minor
    assert Path(found).is_relative_to("/usr/lib")
