"""The catalogue of causes, in the order in which they claim their pieces of gaps.

All modules of this package are imported, and each registers its causes: a new cause may be a new file.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from gputop.analysis.causes.cause import Cause, every, in_order

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

CAUSES: tuple[Cause, ...] = every()

# what fills the gap decides first; the submitting thread's own work goes by the call that drained the GPU
CATALOGUE: tuple[Cause, ...] = in_order()
