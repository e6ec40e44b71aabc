"""Attaches to one library file and waits: hold_probes.py LIBRARY. Says its probes and its helper's number."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from probes.code import libraries
from probes.ebpf import loader
from probes.ebpf.attacher import Attachments


def main() -> None:
    """Ends in order when its input does."""
    attachments = Attachments(loader.load(loader.Options(True, 1 << 16, os.getpid())))
    target = libraries.target(Path(sys.argv[1]))
    assert target is not None
    (entry,) = attachments.attach([target])
    helper = attachments.helper_pid or 0
    sys.stdout.write(f"{entry.symbols} {helper}\n")
    sys.stdout.flush()
    sys.stdin.read()
    attachments.close()


main()
