"""Memory or descriptors have run out: which errors mean that, and the sentence for each."""

from __future__ import annotations

import errno

_MEMORY = (
    "there is not enough memory: end other programs, or allow gputop more "
    "(ulimit -v, the memory limit of its container or service)"
)
_FILES = "too few open files are allowed: start gputop again with a higher limit (ulimit -n)"
_SYSTEM_FILES = "too many files are open on this machine: end other programs, or raise fs.file-max (sysctl)"
_BY_NUMBER = {errno.ENOMEM: _MEMORY, errno.EMFILE: _FILES, errno.ENFILE: _SYSTEM_FILES}
# how the dynamic loader says it, in the text of an ImportError
_UNLOADABLE = ("failed to map segment", "annot allocate memory")
_NO_THREAD = "can't start new thread"


def shortage(error: BaseException) -> str:
    """What has run out and what to do, in one sentence; "" where it was something else."""
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, OSError) and error.errno in _BY_NUMBER:
        return _BY_NUMBER[error.errno]
    text = str(error)
    if isinstance(error, RuntimeError) and text == _NO_THREAD:
        return _MEMORY
    if isinstance(error, (ImportError, OSError)) and any(words in text for words in _UNLOADABLE):
        return _MEMORY
    return ""
