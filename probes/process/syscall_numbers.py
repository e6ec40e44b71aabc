"""Numbers of system calls on x86-64 and arm64: the one table of them. Needs nothing but Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType

# name, number on x86-64, number on arm64 (- where it has none): the kernel's syscall tables.
# The first argument of these is a file descriptor.
OF_FILES = """
    read 0 63; write 1 64; pread64 17 67; pwrite64 18 68; readv 19 65; writev 20 66; preadv 295 69;
    pwritev 296 70; preadv2 327 286; pwritev2 328 287; recvfrom 45 207; recvmsg 47 212; recvmmsg 299 243;
    sendto 44 206; sendmsg 46 211; sendmmsg 307 269; connect 42 203; accept 43 202; accept4 288 242;
    ioctl 16 29; fsync 74 82; fdatasync 75 83; sync_file_range 277 84; flock 73 32; fcntl 72 25;
    sendfile 40 71; splice 275 76; tee 276 77; vmsplice 278 75; fallocate 285 47; ftruncate 77 46;
    getdents64 217 61; syncfs 306 267; copy_file_range 326 285; readahead 187 213
"""
# Others in which a thread may wait.
BLOCKING = """
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
# Those that answer at once, as far as a confined program needs them.
QUICK = """
    fstat 5 80; stat 4 -; lstat 6 -; statfs 137 43; fstatfs 138 44; lseek 8 62; access 21 -; faccessat 269 48;
    faccessat2 439 439; readlink 89 -; readlinkat 267 78; getcwd 79 17; getdents 78 -; dup 32 23; dup2 33 -;
    dup3 292 24; pipe 22 -; pipe2 293 59; mincore 27 232; rt_sigaction 13 134; rt_sigprocmask 14 135;
    rt_sigreturn 15 139; sigaltstack 131 132; clock_gettime 228 113; clock_getres 229 114;
    gettimeofday 96 169; time 201 -; times 100 153; getpid 39 172; getppid 110 173; gettid 186 178;
    getuid 102 174; geteuid 107 175; getgid 104 176; getegid 108 177; setsid 112 157; uname 63 160;
    sysinfo 99 179; getrusage 98 165; getrlimit 97 163; prlimit64 302 261; sched_getaffinity 204 123;
    getcpu 309 168; get_mempolicy 239 236; arch_prctl 158 -; set_tid_address 218 96;
    set_robust_list 273 99; rseq 334 293; getrandom 318 278; setitimer 38 103; uretprobe 335 -; uprobe 336 -
"""
# Others that a daemon makes, which observes, answers, keeps files and has children.
SERVING = """
    alarm 37 -; bind 49 200; bpf 321 280; capget 125 90; capset 126 91; chdir 80 49; chmod 90 -; chown 92 -;
    close_range 436 436; creat 85 -; epoll_create 213 -; epoll_create1 291 20; epoll_ctl 233 21;
    eventfd 284 -; eventfd2 290 19; fadvise64 221 223; fchdir 81 50; fchmod 91 52; fchmodat 268 53;
    fchmodat2 452 452; fchown 93 55; fchownat 260 54; get_robust_list 274 100; getgroups 115 158;
    getitimer 36 102; getpeername 52 205; getpgid 121 155; getpgrp 111 -; getpriority 140 141;
    getresgid 120 150; getresuid 118 148; getsid 124 156; getsockname 51 204; getsockopt 55 209;
    listen 50 201; map_shadow_stack 453 453; memfd_create 319 279; mkdir 83 -; mkdirat 258 34;
    mseal 462 462; perf_event_open 298 241; pidfd_open 434 434; pidfd_send_signal 424 424; prctl 157 167;
    rmdir 84 -; rt_sigpending 127 136; sched_get_priority_max 146 125; sched_get_priority_min 147 126;
    sched_getattr 315 275; sched_getparam 143 121; sched_getscheduler 145 120; sched_setattr 314 274;
    sched_setparam 142 118; sched_setscheduler 144 119; seccomp 317 277; setgid 106 144; setgroups 116 159;
    setpgid 109 154; setpriority 141 140; setregid 114 143; setresgid 119 149; setresuid 117 147;
    setreuid 113 145; setrlimit 160 164; setsockopt 54 208; setuid 105 146; shutdown 48 210;
    signalfd4 289 74; socket 41 198; socketpair 53 199; timerfd_create 283 85; timerfd_gettime 287 87;
    timerfd_settime 286 86; tkill 200 130; umask 95 166; utimensat 280 88;
    lchown 94 -; setfsuid 122 151; setfsgid 123 152
"""
# Of those above, the ones that a daemon does not use.
_UNUSED = """
    io_uring_enter io_getevents io_submit semop semtimedop msgsnd msgrcv mq_timedsend mq_timedreceive mbind
    migrate_pages move_pages vmsplice tee splice sync syncfs
"""
# Those by which one acts on other processes, the machine, its clock or file systems, or gets around filters.
POWERS = """
    ptrace 101 117; process_vm_writev 311 271; kexec_load 246 104; kexec_file_load 320 294;
    init_module 175 105; finit_module 313 273; delete_module 176 106; reboot 169 142; swapon 167 224;
    swapoff 168 225; mount 165 40; umount2 166 39; pivot_root 155 41; chroot 161 51; open_tree 428 428;
    move_mount 429 429; fsopen 430 430; fsconfig 431 431; fsmount 432 432; fspick 433 433;
    mount_setattr 442 442; setns 308 268; unshare 272 97; settimeofday 164 170; clock_settime 227 112;
    clock_adjtime 305 266; adjtimex 159 171; sethostname 170 161; setdomainname 171 162; iopl 172 -;
    ioperm 173 -; modify_ldt 154 -; add_key 248 217; request_key 249 218; keyctl 250 219; acct 163 89;
    quotactl 179 60; userfaultfd 323 282; open_by_handle_at 304 265; syslog 103 116;
    io_uring_setup 425 425; io_uring_register 427 427
"""
_COLUMNS = {"x86_64": 1, "aarch64": 2}


def parsed(text: str, machine: str) -> dict[str, int]:
    """Name -> number of those in a part of the table that a machine has."""
    rows = [row.split() for row in text.split(";")]
    column = _COLUMNS.get(machine, 0)
    return {row[0]: int(row[column]) for row in rows if column and row[column] != "-"}


@cache
def _all(machine: str) -> Mapping[str, int]:
    found = (parsed(text, machine) for text in (OF_FILES, BLOCKING, QUICK, SERVING, POWERS))
    return MappingProxyType({name: number for part in found for name, number in part.items()})


def numbers(names: Iterable[str], machine: str) -> list[int]:
    """The numbers of these system calls; those that the machine does not have are left out.

    Raises:
        ValueError: A name that the table does not hold for any machine.
    """
    known = {name for column in _COLUMNS for name in _all(column)}
    wanted = set(names)
    if not wanted <= known:
        raise ValueError(f"no number is known of {', '.join(sorted(wanted - known))}")
    return sorted(_all(machine)[name] for name in wanted if name in _all(machine))


def of_a_daemon(machine: str) -> frozenset[str]:
    """The system calls of the daemon and its children, by name."""
    texts = (OF_FILES, BLOCKING, QUICK, SERVING)
    return frozenset(name for text in texts for name in parsed(text, machine)) - {*_UNUSED.split()}
