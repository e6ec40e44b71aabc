"""What observing costs while nobody calls CUDA: the daemon beside many idle processes, or beside none."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.bench.processes import used_percent
from tests.bench.rows import Row
from tests.yardstick import USUAL_TURN_S, turn_s

IDLE = 5_000
MOST_PERCENT = 0.5  # where a turn of a loop of Python takes USUAL_TURN_S
_SETTLE_S, _MEASURED_S = 20.0, 20.0  # explanations end when a window holds nothing any more


def rows(folder: Path) -> list[Row]:
    """A row with each number of processes."""
    return [_row(folder, count) for count in (0, IDLE)]


def _row(folder: Path, count: int) -> Row:
    program = folder / "sleepers"
    subprocess.run(["cc", "-O1", "-o", program, Path(__file__).with_name("sleepers.c")], check=True)
    idle = subprocess.Popen([program, str(count)], stdout=subprocess.PIPE, text=True)
    command = [sys.executable, "-m", "gputop", "serve", "--socket", str(folder / f"rest{count}")]
    try:
        assert idle.stdout is not None
        if idle.stdout.readline() != "ready\n":
            raise RuntimeError(f"{count} processes could not be started")
        daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(_SETTLE_S)
            percent = used_percent(daemon.pid, _MEASURED_S)
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)
    finally:
        idle.kill()
        idle.wait()
    name = f"gputop serve at rest beside {count} idle processes"
    most = MOST_PERCENT * turn_s() / USUAL_TURN_S
    return Row(name, percent, "%", most, f"of a core, over {_MEASURED_S:.0f} s")
