"""A GPU process gets its work from another process of this machine. Arguments: WAY WHAT before|after.

WAY is how they talk; WHAT the other one does for each item: it computes, sleeps, or waits for a third one.
"""

import fcntl
import multiprocessing as mp
import os
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count

from clock import Clock
from plain import Gpu

WAY, WHAT, WHICH = sys.argv[1:4]
BEFORE = WHICH == "before"
ITEM_S = 0.015 if BEFORE else 0.0002
TOGETHER = 32  # steps for which an item is got at once after the fix


def compute_peer() -> None:
    until, x = time.perf_counter() + ITEM_S, 0
    while time.perf_counter() < until:
        x += 1


def sleep_peer() -> None:
    time.sleep(ITEM_S)


def ask_third() -> None:
    third.send(1)
    third.recv()


def serve_third(connection) -> None:
    while connection.recv():
        compute_peer()
        connection.send(1)


def make_item() -> None:
    {"computes": compute_peer, "sleeps": sleep_peer, "asks": ask_third}[WHAT]()


def start_third() -> None:
    global third
    if WHAT == "asks":
        third, theirs = mp.get_context("fork").Pipe()
        mp.get_context("fork").Process(target=serve_third, args=(theirs,), daemon=False).start()


# -- ways: each is (the peer's function, its argument, what gets an item) -------------------------


def pipe_peer(connection) -> None:
    start_third()
    while connection.recv():
        make_item()
        connection.send(b"item")
    third_ends()


def socket_peer(listener) -> None:
    start_third()
    connection, _ = listener.accept()
    while connection.recv(1) == b"?":
        make_item()
        connection.sendall(b"item")
    third_ends()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 12  # one packet: two would wait for a delayed acknowledgement

    def do_GET(self) -> None:
        if self.path == "/stop":
            self.close_connection = self.server.done = True
            return
        make_item()
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"item")

    def log_message(self, *_args) -> None:
        pass


def http_peer(server) -> None:
    start_third()
    server.done = False
    while not server.done:
        server.handle_request()
    third_ends()


def eventfd_peer(pair) -> None:
    start_third()
    asked, given = pair
    while os.eventfd_read(asked) == 1:
        make_item()
        os.eventfd_write(given, 1)
    third_ends()


def semaphore_peer(pair) -> None:  # sem_t in shared memory: a futex
    start_third()
    asked, given, ended = pair
    while asked.acquire() and not ended.value:
        make_item()
        given.release()
    third_ends()


def third_ends() -> None:
    if WHAT == "asks":
        third.send(None)


def peer(target, argument) -> None:
    mp.get_context("fork").Process(target=target, args=(argument,), name="producer").start()


def pipe():
    ours, theirs = mp.get_context("fork").Pipe()
    peer(pipe_peer, theirs)
    return lambda: (ours.send(1), ours.recv()), lambda: ours.send(None)


def unix():
    path = f"/tmp/peers-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    peer(socket_peer, listener)
    ours = socket.socket(socket.AF_UNIX)
    ours.connect(path)
    os.unlink(path)
    return lambda: (ours.sendall(b"?"), ours.recv(4)), lambda: ours.sendall(b".")


def tcp():
    listener = socket.create_server(("127.0.0.1", 0))
    peer(socket_peer, listener)
    ours = socket.create_connection(listener.getsockname())
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return lambda: (ours.sendall(b"?"), ours.recv(4)), lambda: ours.sendall(b".")


def http():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    peer(http_peer, server)
    ours = HTTPConnection(*server.server_address)

    def get():
        ours.request("GET", "/")
        return ours.getresponse().read()

    return get, lambda: ours.request("GET", "/stop")


def eventfd():
    asked, given = os.eventfd(0), os.eventfd(0)
    peer(eventfd_peer, (asked, given))
    return lambda: (os.eventfd_write(asked, 1), os.eventfd_read(given)), lambda: os.eventfd_write(asked, 2)


def futex():
    context = mp.get_context("fork")
    asked, given, ended = context.Semaphore(0), context.Semaphore(0), context.Value("b", 0, lock=False)

    def stop():
        ended.value = 1
        asked.release()

    peer(semaphore_peer, (asked, given, ended))
    return lambda: (asked.release(), given.acquire()), stop


def flock():
    """The peer holds a lock on a file while it writes the item that is read then."""
    path = f"/tmp/peers-{os.getpid()}.lock"
    connection, theirs = mp.get_context("fork").Pipe()
    peer(flock_peer, (path, theirs))

    def get():
        connection.send(1)
        connection.recv()  # it has the lock now
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    return get, lambda: (connection.send(None), os.unlink(path))


def flock_peer(pair) -> None:
    start_third()
    path, connection = pair
    with open(path, "w") as file:
        while connection.recv():
            fcntl.flock(file, fcntl.LOCK_EX)
            connection.send(1)
            make_item()
            fcntl.flock(file, fcntl.LOCK_UN)
    third_ends()


def exits():
    """A process for each item, whose end is waited for."""
    code = "import os, time; end = time.perf_counter() + 0.015\nwhile time.perf_counter() < end: pass"

    def get():
        if BEFORE:
            subprocess.run([sys.executable, "-S", "-c", code], check=True)  # <- ends
        else:
            compute_peer()

    return get, lambda: None


def main() -> None:
    get, stop = globals()[WAY]()
    gpu, clock = Gpu(), Clock()
    for number in count():
        if BEFORE or number % TOGETHER == 0:
            get()
        gpu.step()
        if clock.tick():
            break
    clock.report()
    stop()


main()
