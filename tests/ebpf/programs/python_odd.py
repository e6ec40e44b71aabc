"""Calls CUDA from Python that is entered and named in odd ways; counts its lines like python_lines.py.

Arguments are what to do, as names of the functions in here.
"""

import importlib
import os
import signal
import sys
import threading
import types

from python_lines import COUNTS, HELD, RUNTIME, own, tell

HERE = os.path.dirname(os.path.abspath(__file__))
sync, sync_held = RUNTIME.cudaDeviceSynchronize, HELD.cudaDeviceSynchronize


def twice():
    own(sync())
    own(sync_held())


def traced():
    def trace(frame, event, _argument):
        if event == "line" and frame.f_code is twice.__code__:
            own(sync())
        return trace

    def profile(_frame, event, _argument):
        if event == "call":
            own(sync())

    sys.settrace(trace)
    twice()
    sys.settrace(None)
    sys.setprofile(profile)
    twice()
    sys.setprofile(None)
    if hasattr(sys, "monitoring"):
        watch, events = sys.monitoring, sys.monitoring.events.LINE | sys.monitoring.events.INSTRUCTION
        watch.use_tool_id(3, "test")
        for event in (watch.events.LINE, watch.events.INSTRUCTION):
            watch.register_callback(3, event, lambda code, _: code is twice.__code__ and own(sync()))
        watch.set_events(3, events)
        twice()
        watch.set_events(3, 0)


class Dropped:
    def __del__(self):
        own(sync())


def takes(_first, second=None, *_more, **_named):
    own(sync())


def destructors():
    takes(Dropped(), *(Dropped(), Dropped()), x=Dropped())
    for arguments in ((), (1, 2)):
        try:  # what was given is dropped while the frame is being made
            takes(*arguments, Dropped(), second=Dropped())
        except TypeError:
            own(sync())

    def generator():
        _held = Dropped()
        yield 1

    begun = generator()
    next(begun)
    del begun


def signals():
    """Each time a millisecond after the last one was handled: however slow it is, none interrupts another."""

    def interrupted(*_):
        own(sync())
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    signal.signal(signal.SIGALRM, interrupted)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    for _ in range(300):
        own(sync())
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def threads():
    """So many, one after the other, that numbers and memory are used again."""
    for _ in range(100):
        thread = threading.Thread(target=twice)
        thread.start()
        thread.join()


def names():
    """The file and the function have names that need care."""

    def function():
        own(sync())

    class Sub(str):  # its characters lie somewhere else
        pass

    for name in (Sub("sub"), "naïve", "函数", "𝒇", "n\x1b[2J\n\0x", ""):
        given = {"co_filename": type(name)(f"/{name}/f.py"), "co_name": name}
        if hasattr(function.__code__, "co_qualname"):
            given["co_qualname"] = name
        types.FunctionType(function.__code__.replace(**given), globals())()


def long():
    """A function of 5,000 lines, whose table is longer than what is copied at once."""
    lines = [f"    x{number} = n + {number}; y = x{number} * n - {number}" for number in range(5000)]
    lines[10] = lines[4000] = lines[-1] = "    own(sync())"
    made = {}
    exec(compile("def far(n):\n" + "\n".join(lines), "<far>", "exec"), globals(), made)
    made["far"](1)


def often():
    """So often that an interpreter that compiles has code of its own for it, which no file has."""
    for number in range(20_000):
        own(sync())
        takes(number) if number % 3 else twice()
        [own(sync()) for _ in range(number % 2)]
    if hasattr(sys, "_jit") and sys._jit.is_enabled():
        with open("/proc/self/maps") as file:
            assert any(" r-xp 00000000 00:00 0 \n" in line for line in file)


def freed():
    """Code that is gone when the next one comes to its place: more than any count of 15 bits."""
    for number in range(34_000):
        exec("\n" * (number % 50) + "own(sync())", globals())


IN_ANOTHER = """
import sys
sys.path.insert(0, {here!r})
from python_lines import RUNTIME, own, tell
def inner():
    own(RUNTIME.cudaDeviceSynchronize())
for number in range(20):
    inner()
    exec("\\n" * (number + {number}) + "own(RUNTIME.cudaDeviceSynchronize())", globals())
tell()
"""


def another():
    """Interpreters beside the first one, which live and die in turn."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    interpreters = importlib.import_module(name)
    for number in range(4):
        if sys.version_info >= (3, 13):
            one = interpreters.create("legacy" if number % 2 else "isolated")
            run = interpreters.exec
        else:
            one, run = interpreters.create(isolated=False), interpreters.run_string
        own(sync())
        run(one, IN_ANOTHER.format(here=HERE, number=7 * number))
        own(sync())
        interpreters.destroy(one)
        own(sync())


def main():
    for name in sys.argv[1:]:
        globals()[name]()
    tell()
    COUNTS.clear()


if __name__ == "__main__":
    main()
