"""script.py FILE: runs a script as script.c does, in Python: the interpreter, its GIL, ctypes, pickle.

What it cannot do (locks of C, page games, longjmp) is left to C. The truth is written in the same form.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuda import D2H, H2D, Cuda

JUMP_NS = 150_000  # an interrupt takes less, and the scheduler knows nothing of it
Entry = tuple[str, int, int, int, int, str]
UNTIMED = {"launch", "burn", "hold", "sync", "devsync", "evsync", "record", "d2h", "sleep"}
now = time.monotonic_ns


class _OverError(Exception):
    """The main role has ended."""


class Role:
    """A thread or process of the script."""

    def __init__(self, line: str) -> None:
        _, self.name, self.kind, self.queue, cpu, nice = line.split()
        self.cpu, self.nice = int(cpu), int(nice)
        self.ops: list[list[str]] = []


class Machine:
    """What all roles share: CUDA, channels, the helper that burns CPU under the GIL."""

    def __init__(self) -> None:
        self.channels = [os.pipe() for _ in range(16)]
        self.size = 64 << 20
        self.cuda: Any = None
        self.over = mmap.mmap(-1, 4096)  # shared by all roles: the main one has ended its script

    def begin(self, rank: int = 0) -> None:
        """As cuda_begin of cuda_ops.c; with WORLD set also as a rank of NCCL with a device of its own."""
        kinds = os.environ.get("FAULTS_STREAMS")
        if kinds is None:
            return
        self.cuda = Cuda()
        self.cuda.SetDevice(rank)
        how = int(os.environ.get("FAULTS_SYNC", "0"))
        if how:
            self.cuda.SetDeviceFlags(how)
        flag = {"b": 0, "n": 1}
        self.streams = [None if kind == "l" else self.cuda.stream(flag[kind]) for kind in kinds]
        self.events = [self.cuda.event(3 if how == 4 else 2) for _ in range(16)]
        self.device, self.pinned = self.cuda.malloc(self.size), self.cuda.pinned(self.size)
        self.pageable = ctypes.create_string_buffer(self.size)
        ctypes.memset(self.pageable, 1, self.size)
        if "WORLD" in os.environ:
            from nccl import Nccl

            self.nccl = Nccl()
            self.communicator = self.nccl.join(rank, int(os.environ["WORLD"]), os.environ["ID"])


class Runner:
    """Runs one role in the calling thread."""

    def __init__(self, machine: Machine, role: Role) -> None:
        self.machine, self.role = machine, role
        self.entries: list[Entry] = []
        self._rounds = 0
        self._deadline = 0
        self._jumps: Any = None
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """The script, then the diary."""
        role = self.role
        if role.cpu >= 0:
            os.sched_setaffinity(0, {role.cpu})
        if role.nice:
            os.nice(role.nice)  # of this thread alone, as Linux has it
        began, before = now(), _run_delay()
        self._set_deadline()
        with contextlib.suppress(_OverError):
            self._run(0, len(role.ops))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # once is enough
        self._write(began, before)

    def _set_deadline(self) -> None:
        if self.role.kind == "main":
            self._deadline = now() + int(os.environ["FAULTS_LIMIT_MS"]) * 1_000_000

    def _run(self, start: int, stop: int, depth: int = 0) -> None:
        i = start
        while i < stop:
            label, name, *arguments = self.role.ops[i]
            if name == "loop":
                end = self._end_of(i)
                left = int(arguments[0]) or -1
                while left:
                    self._run(i + 1, end, depth + 1)
                    left -= 1
                    if self._ends(depth):
                        break
                i = end
            else:
                self._op(label, name, [int(a) if a.lstrip("-").isdigit() else a for a in arguments])
            i += 1

    def _ends(self, depth: int) -> bool:
        """Whether a loop ends early: the main role's outermost by the time, all others with that role."""
        self._rounds += depth == 0
        late = depth == 0 and bool(self._deadline) and now() > self._deadline
        return late or self.machine.over[0] != 0

    def _end_of(self, i: int) -> int:
        depth = 0
        while True:
            depth += {"loop": 1, "end": -1}.get(self.role.ops[i][1], 0)
            if depth == 0:
                return i
            i += 1

    def _op(self, label: str, name: str, arguments: list[Any]) -> None:
        place = len(self.entries)
        work: Callable[..., None] = getattr(self, "do_" + name)
        self._label, label = label, "-" if name == "hold" else label
        timed = name not in UNTIMED or label[0] == "@"
        queued = _run_delay() if timed else 0
        cpu, start = time.thread_time_ns(), now()
        work(*arguments)
        end = now()
        cpu = time.thread_time_ns() - cpu
        queued = _run_delay() - queued if timed else 0
        # what the operation noted inside itself is painted over it: last
        self.entries.insert(place, (label, start, end, cpu, queued, name))

    def _write(self, began: int, before: int) -> None:
        tid = threading.get_native_id()
        head = f"role {self.role.name} {self.role.queue} {os.getpid()} {tid}"
        head += f" {now() - began} {_run_delay() - before} {self._rounds}\n"
        lines = [" ".join(map(str, entry)) + "\n" for entry in self.entries]
        Path(os.environ["FAULTS_DIARY"], str(tid)).write_text(head + "".join(lines))

    # -- on the host --------------------------------------------------------------------------

    def do_burn(self, ns: int) -> None:
        """Python's own work: gives the GIL up when asked to."""
        spent, last = 0, now()
        while spent < ns:
            moment = now()
            if moment - last < JUMP_NS:
                spent += moment - last
            else:
                self.entries.append((self.role.queue, last, moment, 0, 0, "queue"))
            last = moment

    def do_hold(self, ns: int) -> None:
        """Work of an extension that keeps the GIL."""
        if self._jumps is None:
            self._jumps = (ctypes.c_uint64 * 8200)()
            self._burn = ctypes.PyDLL(os.environ["FAULTS_BURN"]).burn
        count = self._burn(ctypes.c_uint64(ns), self._jumps)
        last, over = self._jumps[0], self._jumps[1]
        for i in range(1, count + 1):
            start, end = self._jumps[2 * i], self._jumps[2 * i + 1]
            self.entries.append((self._label, last, start, 0, 0, "held"))
            self.entries.append((self.role.queue, start, end, 0, 0, "queue"))
            last = end
        self.entries.append((self._label, last, over, 0, 0, "held"))

    def do_sleep(self, ns: int) -> None:
        """Nothing."""
        time.sleep(ns / 1e9)

    def do_send(self, channel: int, size: int) -> None:
        """Bytes to another role."""
        left = memoryview(bytes(size))
        while left:
            left = left[os.write(self.machine.channels[channel][1], left) :]

    def do_recv(self, channel: int, size: int) -> bytes:
        """Bytes from another role."""
        parts = []
        while size:
            parts.append(os.read(self.machine.channels[channel][0], size))
            if not parts[-1]:
                os._exit(0)
            size -= len(parts[-1])
        return b"".join(parts)

    def do_sendobj(self, channel: int, count: int) -> None:
        """Small objects, pickled once: only who receives them has the work."""
        if getattr(self, "_pickled", None) is None:
            self._pickled = pickle.dumps([{"index": i, "label": str(i)} for i in range(count)])
        self.do_send_bytes(channel, len(self._pickled).to_bytes(8, "little") + self._pickled)

    def do_send_bytes(self, channel: int, data: bytes) -> None:
        """All of it."""
        left = memoryview(data)
        while left:
            left = left[os.write(self.machine.channels[channel][1], left) :]

    def do_recvobj(self, channel: int) -> None:
        """Receives them."""
        self._received = self.do_recv(channel, int.from_bytes(self.do_recv(channel, 8), "little"))

    def do_unpickle(self) -> None:
        """Makes objects of what was received."""
        pickle.loads(self._received)

    def do_net(self, port: int) -> None:
        """Asks the server and waits for its answer."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(b"?")
        self._socket.recv(1)

    def do_gate(self) -> None:
        """As gate of host_ops.c."""
        path = os.environ.get("FAULTS_GATE")
        if path is None:
            return
        Path(path).touch()
        while not os.path.exists(path + ".go"):
            time.sleep(0.002)
        self._set_deadline()

    # -- CUDA ---------------------------------------------------------------------------------

    def do_launch(self, stream: int, ns: int, count: int) -> None:
        """Kernels."""
        for _ in range(count):
            self.machine.cuda.launch(ns, self.machine.streams[stream])

    def _host(self, kind: str) -> Any:
        return self.machine.pinned if kind == "pin" else self.machine.pageable

    def do_h2d(self, stream: int, size: int, kind: str) -> None:
        """A copy to the device."""
        machine = self.machine
        machine.cuda.copy_async(machine.device, self._host(kind), size, H2D, machine.streams[stream])

    def do_d2h(self, stream: int, size: int, kind: str) -> None:
        """A copy from the device."""
        machine = self.machine
        machine.cuda.copy_async(self._host(kind), machine.device, size, D2H, machine.streams[stream])

    def do_sync(self, stream: int) -> None:
        """cudaStreamSynchronize."""
        self.machine.cuda.StreamSynchronize(self.machine.streams[stream])

    def do_devsync(self) -> None:
        """cudaDeviceSynchronize."""
        self.machine.cuda.DeviceSynchronize()

    def do_record(self, stream: int, event: int) -> None:
        """cudaEventRecord."""
        self.machine.cuda.EventRecord(self.machine.events[event], self.machine.streams[stream])

    def do_evsync(self, event: int) -> None:
        """cudaEventSynchronize."""
        self.machine.cuda.EventSynchronize(self.machine.events[event])

    def do_allreduce(self, stream: int, count: int) -> None:
        """ncclAllReduce of floats."""
        machine = self.machine
        machine.nccl.all_reduce(machine.communicator, machine.streams[stream], count)

    def do_malloc(self, size: int) -> None:
        """cudaMalloc and cudaFree."""
        self.machine.cuda.Free(self.machine.cuda.malloc(size))

    def do_hostalloc(self, size: int) -> None:
        """cudaMallocHost and cudaFreeHost."""
        self.machine.cuda.FreeHost(self.machine.cuda.pinned(size))


_local = threading.local()


def _run_delay() -> int:
    """How long the calling thread has waited in run queues."""
    if not hasattr(_local, "file") or _local.pid != os.getpid():
        _local.file, _local.pid = os.open("/proc/thread-self/schedstat", os.O_RDONLY), os.getpid()
    return int(os.pread(_local.file, 128, 0).split()[1])


def _over(_number: int, _frame: object) -> None:
    raise _OverError


def main(path: str) -> None:
    """Forks and starts the roles, runs the first one itself."""
    roles: list[Role] = []
    for line in Path(path).read_text().splitlines():
        if line.startswith("role "):
            roles.append(Role(line))
        elif line:
            roles[-1].ops.append(line.split())
    gc.disable()
    machine = Machine()
    children = {}
    for role in roles[1:]:
        if role.kind in ("process", "rank"):
            children[role.name] = os.fork()
            if children[role.name] == 0:
                signal.signal(signal.SIGUSR1, _over)
                if role.name == "loader":
                    Path("/proc/self/comm").write_text("pt_data_worker")  # as PyTorch names its DataLoader's
                if role.kind == "rank":
                    machine.begin(1)
                Runner(machine, role).run()
                os._exit(0)
    machine.begin()
    threads = []
    for role in roles[1:]:
        if role.kind == "thread":
            threads.append(threading.Thread(target=Runner(machine, role).run, daemon=True))
            threads[-1].start()
    Runner(machine, roles[0]).run()
    machine.over[0] = 1
    for thread in threads:
        thread.join(1)
    for child in children.values():
        _end(child)


def _end(child: int) -> None:
    """Gives it the time of a round to write what it did; a signal ends its wait for the main role."""
    for _ in range(1000):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        os.kill(child, signal.SIGUSR1)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1])
