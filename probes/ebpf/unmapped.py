"""Which probed files no process maps any more: each takes descriptors until it is let go of."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from probes.files.untrusted_files import Identity

FEW = 16  # files that stay probed though no process maps them: the next run of a program is seen whole


class Unmapped:
    """Remembers when a file was last seen mapped; one for each kind of files."""

    def __init__(self) -> None:
        self._used: dict[Identity, float] = {}

    def of(self, probed: Iterable[Identity], mapped: Collection[Identity], now: float) -> list[Identity]:
        """Those to let go of: no process maps them, and they are not the ``FEW`` that were mapped last."""
        self._used = {file: now if file in mapped else self._used.get(file, now) for file in probed}
        unused = sorted(self._used.keys() - mapped, key=lambda file: (self._used[file], file))
        return unused[: max(len(unused) - FEW, 0)]
