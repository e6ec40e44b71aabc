"""Which gputop this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def program_version() -> str:
    """The installed version."""
    try:
        return version("gputop")
    except PackageNotFoundError:
        return "unknown (not installed)"
    except OSError as error:
        return f"unknown ({error.strerror})"
