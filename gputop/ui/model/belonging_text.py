"""Whose a process is beyond its user, as text: container, pod, job, rank; "" where it is not known."""

from __future__ import annotations

from gputop.engine.frame import ProcessRow


def belongs(row: ProcessRow, key: str) -> str:
    """What is known of whose a process is, as text; "" where nothing is."""
    return next((str(value) for name, value in row.belongs if name == key), "")


def container_id(row: ProcessRow) -> str:
    """The container without its kind: of Kubernetes its name in the pod, else its id or name."""
    return belongs(row, "pod_container") or row.container.rpartition(" ")[2]


def job(row: ProcessRow) -> str:
    """The job and its step: ``4711.0``."""
    return ".".join(filter(None, (belongs(row, "job_id"), belongs(row, "job_step"))))


def rank(row: ProcessRow) -> str:
    """The rank, and of how many: ``3/8``."""
    number, size = belongs(row, "rank"), belongs(row, "world_size")
    return f"{number}/{size}" if number and size else number
