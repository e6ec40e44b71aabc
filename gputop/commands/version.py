"""Which gputop this is."""

from __future__ import annotations


def program_version() -> str:
    """The installed version."""
    from importlib.metadata import PackageNotFoundError, version  # as long as half of what else starts

    try:
        return version("gputop")
    except PackageNotFoundError:
        return "unknown (not installed)"
    except OSError as error:
        return f"unknown ({error.strerror})"
