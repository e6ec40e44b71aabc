"""System calls in which threads block: their numbers, and which of them take a file descriptor."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

# name, number on x86-64, number on arm64 (- where it has none): the kernel's syscall tables.
# The first argument of these is a file descriptor.
_OF_FILES = """
    read 0 63; write 1 64; pread64 17 67; pwrite64 18 68; readv 19 65; writev 20 66; preadv 295 69;
    pwritev 296 70; preadv2 327 286; pwritev2 328 287; recvfrom 45 207; recvmsg 47 212; recvmmsg 299 243;
    sendto 44 206; sendmsg 46 211; sendmmsg 307 269; connect 42 203; accept 43 202; accept4 288 242;
    ioctl 16 29; fsync 74 82; fdatasync 75 83; sync_file_range 277 84; flock 73 32; fcntl 72 25;
    sendfile 40 71; splice 275 76; tee 276 77; vmsplice 278 75; fallocate 285 47; ftruncate 77 46;
    getdents64 217 61; syncfs 306 267; copy_file_range 326 285; readahead 187 213
"""
_OTHERS = """
    futex 202 98; futex_waitv 449 449; futex_wake 454 454; futex_wait 455 455; futex_requeue 456 456;
    poll 7 -; ppoll 271 73; select 23 -; pselect6 270 72; epoll_wait 232 -; epoll_pwait 281 22;
    epoll_pwait2 441 441; nanosleep 35 101; clock_nanosleep 230 115; sched_yield 24 124; pause 34 -;
    wait4 61 260; waitid 247 95; exit 60 93; exit_group 231 94; rt_sigtimedwait 128 137;
    rt_sigsuspend 130 133; restart_syscall 219 128; mmap 9 222; munmap 11 215; mprotect 10 226;
    mremap 25 216; madvise 28 233; brk 12 214; msync 26 227; mlock 149 228; mlock2 325 284;
    munlock 150 229; open 2 -; openat 257 56; openat2 437 437; close 3 57; clone 56 220; clone3 435 435;
    fork 57 -; vfork 58 -; execve 59 221; io_uring_enter 426 426; io_getevents 208 4; io_submit 209 2;
    semop 65 193; semtimedop 220 192; msgsnd 69 189; msgrcv 70 188; mq_timedsend 242 182;
    mq_timedreceive 243 183; membarrier 324 283; unlink 87 -; unlinkat 263 35; rename 82 -;
    renameat 264 38; renameat2 316 276; newfstatat 262 79; statx 332 291; sync 162 81; kill 62 129;
    tgkill 234 131; sched_setaffinity 203 122; mbind 237 235; migrate_pages 256 238; move_pages 279 239
"""
_COLUMNS = {"x86_64": 1, "aarch64": 2}


def _numbers(text: str, machine: str) -> dict[int, str]:
    rows = [row.split() for row in text.split(";")]
    column = _COLUMNS.get(machine, 0)
    return {int(row[column]): row[0] for row in rows if column and row[column] != "-"}


@cache
def _names(machine: str) -> dict[int, str]:
    return _numbers(_OF_FILES, machine) | _numbers(_OTHERS, machine)


def name(number: int, machine: str) -> str:
    """The system call of a number, on a machine as ``uname -m`` calls it; empty when it is not listed."""
    return _names(machine).get(number, "")


@cache
def of_files(machine: str) -> npt.NDArray[np.bool_]:
    """For each number of 16 bits, whether the first argument of that system call is a file descriptor."""
    table = np.zeros(1 << 16, np.bool_)
    table[list(_numbers(_OF_FILES, machine))] = True
    return table
