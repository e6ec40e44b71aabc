"""The catalogue: what a gap can be blamed on, in the order in which the causes are tried.

Every module of this package is read, and a cause registers itself in its own: a new one is a new file.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from gputop.analysis.causes.cause import Cause, every, in_order

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

CAUSES: tuple[Cause, ...] = every()

# What fills the gap decides first; only the submitting thread's own work goes by the call that drained the
# GPU.
CATALOGUE: tuple[Cause, ...] = in_order()
