"""Opens files that somebody else may have laid: a pipe would keep us waiting, and a link lead elsewhere."""

from __future__ import annotations

import errno
import os
import stat


def opened(path: str, *, follow: bool = True) -> int:
    """A descriptor of a regular file, for reading.

    Args:
        path: Where it is.
        follow: Whether it may be a link.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno != errno.ELOOP or follow:
            raise
        raise OSError(errno.ELOOP, "it is a symbolic link", path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor
