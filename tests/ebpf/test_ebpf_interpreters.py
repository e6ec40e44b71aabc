"""bcc is the distribution's, made for its own Python; gputop loads programs with it under each of ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ebpf.interpreters import interpreter
from tests.ebpf.recording import TIMEOUT_S

pytestmark = pytest.mark.ebpf

ROOT = Path(__file__).resolve().parents[2]
# numpy is another wheel for each Python and has no part in this
LOAD = """
import sys
from pathlib import Path
from unittest.mock import MagicMock
for name in ("numpy", "numpy.typing"):
    sys.modules[name] = MagicMock()
from probes.ebpf import bpfcall
from probes.ebpf.build import compiled
from probes.ebpf.build import compiler
from probes.ebpf import module
text = "BPF_ARRAY(counts, u64, 1); int probe(void *context) { u32 row = 0; return !counts.lookup(&row); }"
made = compiled.compiled(text, Path(sys.argv[1]))
assert not made.cached
assert module.Module(made).load("probe", bpfcall.ProgramType.KPROBE) >= 0
print(sys.version_info.minor, compiler.import_bcc().__file__)
"""


@pytest.mark.parametrize("minor", [10, 11, 12, 13, 14, 15])
@pytest.mark.mainly("10", "15")
def test_the_distributions_bcc_works_under_each_python(minor: int, tmp_path: Path) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} on this machine")
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    done = subprocess.run(
        [str(tmp_path / "env/bin/python"), "-c", LOAD, str(tmp_path / "cache")],
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
