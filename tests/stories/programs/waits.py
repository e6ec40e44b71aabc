"""A GPU thread is held up by its own process or its files. Arguments: KIND before|after; see below."""

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from clock import Clock
from plain import Gpu

KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
FOLDER = Path(tempfile.mkdtemp(prefix="waits-", dir="/var/tmp"))


def nothing() -> None:
    pass


# -- a sleep of its own ----


def nap_step() -> None:
    time.sleep(0.012)  # "so that the others can catch up"


def nap_backoff() -> None:
    for _ in range(3):
        time.sleep(0.004)


def nap_event() -> None:
    NEVER.wait(0.012)  # nobody sets it


NEVER = threading.Event()


# -- a lock whose holder computes, sleeps, or writes --------------------------------------

LOCK = threading.Lock()
OVER = threading.Event()


def compute_holding() -> None:
    until, x = time.perf_counter() + 0.012, 0
    while time.perf_counter() < until:
        x = zlib.crc32(BYTES, x)  # without the GIL


def sleep_holding() -> None:
    time.sleep(0.012)


def write_holding() -> None:
    write_synced()


BYTES = bytes(1 << 20)


def hold(what) -> None:
    while not OVER.is_set():
        with LOCK:
            what()
        time.sleep(0.001)


def locked(what):
    """Takes the lock for each step; another thread holds it most of the time."""
    if BEFORE:
        threading.Thread(target=hold, args=(what,), name="holder", daemon=True).start()

    def take() -> None:
        with LOCK:
            pass

    return take


# -- the GIL ----------------------------------------------------------------------------------------


def gil_loop() -> None:
    x = 0
    for number in range(60_000):
        x += number % 7


def gil_json() -> None:
    json.loads(TEXT)


def gil_regex() -> None:
    PATTERN.findall(TEXT)


def gil_switch() -> None:
    x = 0
    for number in range(4_000):  # with a switch interval of 0.5 ms
        x += number % 7


def gil_short() -> None:
    x = 0
    for number in range(6_000):
        x += number % 7
    time.sleep(0)  # lets the GIL go long before its 5 ms are over


def gil_mixed() -> None:
    x = zlib.crc32(BYTES)  # without the GIL
    for number in range(9_000):
        x += number % 7


TEXT = json.dumps([{"id": number, "name": f"user {number}"} for number in range(8_000)])
PATTERN = re.compile(r'"name": "(\w+) (\d+)"')


def beside(what):
    """Three threads do this all the time; the GPU's thread makes small launches between."""

    def forever() -> None:
        while not OVER.is_set():
            what()

    if what is gil_switch:
        sys.setswitchinterval(0.0005)
    count = {gil_switch: 1, gil_short: 2}.get(what, 3)
    for number in range(count if BEFORE else 0):
        threading.Thread(target=forever, name=f"crunch-{number}", daemon=True).start()
    return nothing


# -- processes are started in the loop ----


def start_run() -> None:
    subprocess.run([sys.executable, "-c", "import json, argparse"], check=True)  # <- starts


def start_pool() -> None:
    with ProcessPoolExecutor(2) as pool:  # <- starts
        list(pool.map(square, range(4)))  # <- starts


def start_fork() -> None:
    child = os.fork()
    if not child:
        time.sleep(0.004)
        os._exit(0)
    os.waitpid(child, 0)  # <- starts


def square(x: int) -> int:
    return x * x


# -- files ----


def write_synced() -> None:
    with open(FOLDER / "checkpoint", "wb") as file:
        file.write(BYTES * 4)
        os.fsync(file.fileno())


def write_database() -> None:
    with DATABASE:
        DATABASE.execute("insert into log values (?)", (time.time(),))


def read_uncached() -> None:
    with open(FOLDER / "data", "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.read()


DATABASE = sqlite3.connect(FOLDER / "log.db", check_same_thread=False)
DATABASE.execute("create table log (at real)")


# -- its own threads have its CPU ---------------------------------------------------------------------


def crowd(what):
    """Twelve threads do this outside of the GIL."""
    if BEFORE:
        pool = ThreadPoolExecutor(12, thread_name_prefix="crowd")
        for _ in range(12):
            pool.submit(lambda: [what() for _ in iter(OVER.is_set, True)])
    return lambda: gil_loop()  # what the GPU's thread itself computes


def crowd_hash() -> None:
    hashlib.sha256(BYTES)


def crowd_zip() -> None:
    zlib.compress(BYTES[: 1 << 18])


def crowd_crc() -> None:
    zlib.crc32(BYTES)


PLAIN = (nap_step, nap_backoff, nap_event, start_run, start_pool, start_fork)
GIL = (gil_loop, gil_json, gil_regex, gil_switch, gil_short, gil_mixed)
FILES = (write_synced, write_database, read_uncached)
MADE = {
    **{what.__name__: (lambda what=what: what if BEFORE else nothing) for what in (*PLAIN, *FILES)},
    **{
        what.__name__: (lambda what=what: locked(what))
        for what in (compute_holding, sleep_holding, write_holding)
    },
    **{what.__name__: (lambda what=what: beside(what)) for what in GIL},
    **{what.__name__: (lambda what=what: crowd(what)) for what in (crowd_hash, crowd_zip, crowd_crc)},
}


def main() -> None:
    (FOLDER / "data").write_bytes(os.urandom(24 << 20))
    os.sync()
    gpu = Gpu()
    work = MADE[KIND]()
    clock = Clock()
    while not clock.tick():
        work()
        gpu.step()
    clock.report()
    OVER.set()
    for path in FOLDER.iterdir():
        path.unlink()
    FOLDER.rmdir()
    os._exit(0)


main()
