"""The file with a command's output, which the command keeps writing after gputop's end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TextIO

from gputop.errors import CommandError
from gputop.process.child import behind_sudo
from replay.ownership import create


class OutputFile:
    """A new file of the user behind sudo.

    Since that user may rename or replace it, it is read and measured by its descriptor, and removed in the
    folder where it was created.

    Raises:
        CommandError: It cannot be created.
    """

    def __init__(self) -> None:
        user = behind_sudo()
        owner = (user.uid, user.gid) if user else None
        self.path = Path(tempfile.gettempdir(), f"gputop-output-{os.urandom(6).hex()}.log")
        try:
            self._file = create(str(self.path), owner)
        except OSError as error:
            raise CommandError(
                f"cannot write the command's output to {self.path.parent} ({error.strerror}): set TMPDIR to "
                "another folder"
            ) from error
        if owner is not None and self._file.owner is None:  # only root may write there
            os.fchown(self.descriptor, *owner)

    @property
    def descriptor(self) -> int:
        """The descriptor for the command to write to."""
        return self._file.descriptor

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return os.fstat(self.descriptor).st_size

    def reader(self) -> TextIO:
        """Open the file at its start, with a position of its own."""
        return Path(f"/proc/self/fd/{self.descriptor}").open(errors="replace")

    def remove(self) -> None:
        self._file.remove()
