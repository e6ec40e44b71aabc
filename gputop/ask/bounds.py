"""What a process that answers questions of others may take of the machine's memory."""

from __future__ import annotations

import os
import resource

MORE_BYTES = 4 << 30


def bound_memory(more_bytes: int = MORE_BYTES) -> None:
    """From now on this process gets so much more memory for its data and no more.

    DuckDB counts the memory of its tables, not that of one long text which a function makes: without this
    bound ``repeat('x', 3000000000)`` takes 6 GB. With it the query fails, and nothing else. What is only
    reserved, as by threads for their heaps, does not count.
    """
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (now + more_bytes, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
