"""An inference server in several processes. Arguments: KIND before|after; see the functions.

Its unit of work is a request: a prefill, then eight tokens, each read by the engine.
"""

import asyncio
import mmap
import multiprocessing as mp
import os
import queue
import socket
import sys
import threading
import time

from clock import Clock
from plain import Gpu

KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
CONTEXT = mp.get_context("fork")
TOKENS = 8


class Engine:
    """The GPU's side: answers a request at a time."""

    def __init__(self, after_token=lambda: None) -> None:
        self.gpu, self.after_token = Gpu(), after_token

    def answer(self) -> None:
        self.gpu.launch(20, 50_000)
        for _ in range(TOKENS):
            self.gpu.launch(20, 8_000)
            self.gpu.read()
            self.after_token()


def served(get, engine: Engine, put=lambda: None) -> None:
    clock = Clock()
    while not clock.tick():
        get()
        engine.answer()
        put()
    clock.report()


# -- front and engine ----


def tokenize() -> None:
    until, x = time.perf_counter() + (0.020 if BEFORE else 0.00002), 0
    while time.perf_counter() < until:
        x += 1


def front_pipe(connection) -> None:
    while True:
        tokenize()
        connection.send([1] * 100)
        if not connection.recv():
            return


def front_socket(sock) -> None:
    while True:
        tokenize()
        sock.sendall(b"x" * 400)
        if sock.recv(1) != b"+":
            return


def front_zmq(address: str) -> None:
    import zmq

    sock = zmq.Context().socket(zmq.PAIR)
    sock.linger = 0  # else it would wait for an engine that has ended
    sock.connect(address)
    while True:
        tokenize()
        sock.send(b"x" * 400)
        if sock.recv() != b"+":
            return


def by_pipe() -> None:
    ours, theirs = CONTEXT.Pipe()
    CONTEXT.Process(target=front_pipe, args=(theirs,), name="front").start()
    served(ours.recv, Engine(), lambda: ours.send(1))
    ours.recv()
    ours.send(0)


def by_unix_socket() -> None:
    ours, theirs = socket.socketpair()
    CONTEXT.Process(target=front_socket, args=(theirs,), name="front").start()
    served(lambda: ours.recv(400, socket.MSG_WAITALL), Engine(), lambda: ours.sendall(b"+"))
    ours.sendall(b".")


def by_zmq() -> None:
    import zmq

    address = f"ipc:///tmp/serving-{os.getpid()}"
    CONTEXT.Process(target=front_zmq, args=(address,), name="front").start()
    sock = zmq.Context().socket(zmq.PAIR)
    sock.bind(address)
    served(sock.recv, Engine(), lambda: sock.send(b"+"))
    sock.send(b".")


# -- an asyncio server whose event loop is blocked ----


async def handle(requests: queue.Queue, done: asyncio.Event) -> None:
    blocked_loop()
    requests.put(done)
    await done.wait()


def blocked_loop() -> None:
    until, x = time.perf_counter() + (0.015 if BEFORE else 0.00002), 0  # log, validate, render a template
    while time.perf_counter() < until:
        x += 1


def by_asyncio() -> None:
    requests: queue.Queue = queue.Queue()
    over = threading.Event()

    async def front() -> None:
        while not over.is_set():
            await handle(requests, asyncio.Event())

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        current: list[asyncio.Event] = []

        def engine() -> None:
            served(
                lambda: current.append(requests.get()),
                Engine(),
                lambda: loop.call_soon_threadsafe(current.pop().set),
            )
            over.set()
            os._exit(0)

        threading.Thread(target=engine, name="engine").start()
        await front()

    asyncio.run(serve())


# -- a pool tokenizes, one thread gathers ----


def tokenize_text(_text: int) -> int:
    tokenize()
    return 1


def by_pool() -> None:
    with CONTEXT.Pool(2) as pool:
        engine = Engine()
        served(lambda: pool.map(tokenize_text, range(2)), engine)


# -- workers poll a broadcast in shared memory ----


def schedule() -> None:
    until, x = time.perf_counter() + (0.015 if BEFORE else 0.00002), 0
    while time.perf_counter() < until:
        x += 1


def scheduler(memory) -> None:
    number = 0
    while memory[2] == 0:
        schedule()
        number = number % 250 + 1
        memory[0] = number
        while memory[1] != number and memory[2] == 0:
            time.sleep(0.0002)


def by_broadcast() -> None:
    memory = mmap.mmap(-1, 4096)
    CONTEXT.Process(target=scheduler, args=(memory,), name="scheduler").start()
    last = 0

    def dequeue() -> None:
        nonlocal last
        while memory[0] == last:
            os.sched_yield()
        last = memory[0]

    def done() -> None:
        memory[1] = last

    served(dequeue, Engine(), done)
    memory[2] = 1


# -- a server, an engine core that schedules, a worker that polls the core's memory and replays graphs ----


class GraphEngine(Engine):
    """Decodes by replaying a graph for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.decode = self.gpu.graph(20, 8_000)

    def answer(self) -> None:
        self.gpu.launch(20, 50_000)
        for _ in range(TOKENS):
            self.gpu.replay(self.decode)
            self.gpu.read()


def api_server(sock) -> None:
    while True:
        sock.sendall(b"x" * 400)
        if sock.recv(1) != b"+":
            return


def core_detokenize() -> None:
    until, x = time.perf_counter() + (0.012 if BEFORE else 0.00001), 0
    while time.perf_counter() < until:
        x += 1


def engine_core(memory, sock, work) -> None:
    number = 0
    while sock.recv(400, socket.MSG_WAITALL):
        number = number % 250 + 1
        work()
        memory[0] = number
        while memory[1] != number and memory[2] == 0:
            time.sleep(0.0002)
        sock.sendall(b"+" if memory[2] == 0 else b".")
        if memory[2]:
            return


def by_engine(work) -> None:
    memory = mmap.mmap(-1, 4096)
    core, server = socket.socketpair()
    CONTEXT.Process(target=api_server, args=(server,), name="api").start()
    CONTEXT.Process(target=engine_core, args=(memory, core, work), name="core").start()
    last = 0

    def dequeue() -> None:
        nonlocal last
        while memory[0] == last:
            os.sched_yield()
        last = memory[0]

    def done() -> None:
        memory[1] = last

    served(dequeue, GraphEngine(), done)
    memory[2] = 1


def by_core_schedules() -> None:
    by_engine(schedule)


def by_core_detokenizes() -> None:
    by_engine(core_detokenize)


# -- a batch waits for its timer, though the requests are there ----


def batch_timer(requests: queue.Queue) -> list:
    batch, until = [requests.get()], time.monotonic() + (0.020 if BEFORE else 0.0)
    while len(batch) < 64 and (left := until - time.monotonic()) > 0:
        try:
            batch.append(requests.get(timeout=left))
        except queue.Empty:
            break
    return batch


def by_timer() -> None:
    requests: queue.Queue = queue.Queue()
    requests.put(1)
    served(lambda: batch_timer(requests), Engine(), lambda: requests.put(1))


# -- the engine itself ----


def detokenize() -> None:
    until, x = time.perf_counter() + (0.003 if BEFORE else 0.00001), 0
    while time.perf_counter() < until:
        x += 1


def by_detokenizing() -> None:
    served(lambda: None, Engine(detokenize))


# -- clients ----


def slow_client(sock) -> None:
    while sock.recv(1 << 14):
        if BEFORE:
            time.sleep(0.004)


def by_slow_client() -> None:
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    CONTEXT.Process(target=slow_client, args=(theirs,), name="client").start()
    theirs.close()
    served(lambda: None, Engine(), lambda: ours.sendall(bytes(1 << 17)))
    ours.shutdown(socket.SHUT_WR)  # the child has a copy


def few(sock) -> None:
    while True:
        time.sleep(0.050)
        sock.sendall(b"?")
        if sock.recv(1) != b"+":
            return


def by_few_requests() -> None:
    """Healthy: a client of another program asks now and then."""
    listener = socket.create_server(("127.0.0.1", 0))
    CONTEXT.Process(
        target=few, args=(socket.create_connection(listener.getsockname()),), name="client"
    ).start()
    connection, _ = listener.accept()
    served(lambda: connection.recv(1), Engine(), lambda: connection.sendall(b"+"))
    connection.sendall(b".")


globals()[f"by_{KIND}"]()
