"""Several gputops at once, and a machine whose tracefs goes away: each count stays exact."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from replay.reader import SessionReader
from tests.ebpf.growing import marks
from tests.ebpf.recording import Workshop, compile_program
from tests.gputop_command import GPUTOP
from tests.observed_demo import SLEEPS
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf


def test_three_gputops_count_each_its_own_program_exactly(tmp_path: Path) -> None:
    program = compile_program("exec_thread.c", tmp_path)
    shops = []
    for number in range(1, 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        shops.append((Workshop(folder), number * 1000))
    started = [shop.start(["--", str(program), "0", str(calls)]) for shop, calls in shops]
    for (shop, calls), recorder in zip(shops, started, strict=True):
        run = shop.finish(recorder)
        (said,) = run.said
        assert [process["pid"] for process in run.stats["processes"] if process["calls"]] == [said["pid"]]
        assert run.nesting(said["pid"], "cudaStreamQuery") == {False: calls}
        assert run.lost == 0


@pytest.mark.long
def test_a_tracefs_that_is_unmounted_meanwhile_changes_nothing(tmp_path: Path) -> None:
    """In a mount namespace of its own: this machine's stays where it is."""
    if shutil.which("unshare") is None or not Path("/sys/kernel/tracing/events").exists():
        pytest.skip("no unshare, or no tracefs to unmount")
    shop = Workshop(tmp_path)
    gone = tmp_path / "gone"
    script = f"""mount --make-rprivate /
        while [ ! -e {gone} ]; do sleep 0.05; done &
        waiting=$!
        "$@" & recorder=$!
        wait $waiting
        umount -l /sys/kernel/tracing && [ ! -e /sys/kernel/tracing/events ] && echo unmounted >> {gone}
        wait $recorder"""
    demo = [sys.executable, "-m", "gputop.demo", "healthy", "3"]
    command = [*GPUTOP, "record", "--force", "-o", str(shop.file), "--lines", "off", "--simgpu", "--", *demo]
    recorder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", *command],
        env=shop.env | SLEEPS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: marks(shop.file) >= 4, "the program to run")
    gone.touch()
    run = shop.finish(recorder)
    assert gone.read_text() == "unmounted\n"
    (pid,) = [process["pid"] for process in run.stats["processes"] if process["calls"]]
    assert run.counts(pid)["cuLaunchKernel"] == shop.simgpu_counts(pid)["cuLaunchKernel"] > 1000
    reader = SessionReader(run.path)
    assert not [sample.data for sample in reader.samples("problem")]
    reader.close()
