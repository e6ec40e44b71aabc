"""Compiles a text of BPF programs with bcc, in a process of its own: the compiler's memory goes with it.

Run as a script by ``compiled.py``: the text comes through standard input, the result goes to
standard output as JSON. It imports nothing of gputop, so that it starts fast.

bcc is looked for where distributions put it. It makes the maps of a text, too, but loads no program: the
result are instructions, in which a map is named by its place in the list of maps.
"""

from __future__ import annotations

import base64
import ctypes
import importlib.util
import json
import os
import struct
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

# where Debian, Ubuntu, Fedora and Arch put the bcc that belongs to libbcc.so.0; first that of this Python
# (the kit for real GPUs has one of its own)
BCC_FOLDERS = tuple(
    dict.fromkeys(
        (
            f"{sys.base_prefix}/lib/python3/dist-packages",
            "/usr/lib/python3/dist-packages",
            "/usr/lib/python3/site-packages",
        )
    )
)
FLAGS = ("-Wno-macro-redefined",)
NO_BCC = 2  # exit status
OUTSIDE = 1 << 30  # from here on the numbers of maps that the text does not make itself

MAP = 0x1018  # opcode BPF_LD | BPF_IMM | BPF_DW, source BPF_PSEUDO_MAP_FD
VALUE = 0x2018  # the same, source BPF_PSEUDO_MAP_VALUE
NUMBER = 0x0018  # the same, of a number
HEAD = 0xF0FF  # all but the destination
_MAP_FACTS = {"map_type": "type", "key_size": "key", "value_size": "value", "max_entries": "entries"}
_COMPILER = ("/libbcc", "/libLLVM", "/libclang")


class NoBccError(Exception):
    """bcc is not installed, or its library cannot be loaded; the message names the reason and next step."""


def bcc_packages() -> list[Path]:
    """Folders in which bcc's Python package is, as far as distributions have one."""
    more = sorted(map(str, Path("/usr/lib").glob("python3.*/site-packages")))
    folders = (Path(folder) / "bcc" for folder in (*BCC_FOLDERS, *more))
    return [folder for folder in folders if (folder / "__init__.py").exists()]


def import_bcc() -> ModuleType:
    """The distribution's bcc module, also for an interpreter that is not the distribution's.

    PyPI's ``bcc`` is an unrelated package, so a module without ``BPF`` does not count.

    Raises:
        NoBccError: Not installed, or its library cannot be loaded.
    """
    loaded = sys.modules.get("bcc")
    if loaded is not None and hasattr(loaded, "BPF"):
        return loaded
    reason = "it is not installed"
    for folder in bcc_packages():
        spec = importlib.util.spec_from_file_location(
            "bcc", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        sys.modules["bcc"] = module
        try:
            with warnings.catch_warnings():  # bcc's own sources, compiled by a newer Python
                warnings.simplefilter("ignore")
                spec.loader.exec_module(module)
        except (ImportError, OSError) as error:
            del sys.modules["bcc"]
            reason = f"{folder} does not load: {error}"
            continue
        return module
    raise NoBccError(
        f"live tracing needs bcc, and {reason}: apt-get install python3-bpfcc "
        "(the package named bcc on PyPI is something else)"
    )


def compile_text(text: bytes, shim: str) -> dict[str, Any]:
    """The compiled text, in the form that ``probes/ebpf/build/compiled.py`` reads.

    Raises:
        NoBccError: As ``import_bcc``.
        Exception: bcc's own, when it does not compile or when the kernel does not make its maps.
    """
    bcc = import_bcc()
    os.environ["BCC_KERNEL_SOURCE"] = shim
    module = bcc.BPF(text=text, cflags=list(FLAGS)).module
    lib = sys.modules["bcc.libbcc"].lib
    lib.bpf_num_tables.argtypes = [ctypes.c_void_p]
    lib.bpf_num_tables.restype = ctypes.c_size_t
    lib.bpf_table_name.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    lib.bpf_table_name.restype = ctypes.c_char_p
    tables = [lib.bpf_table_name(module, row) for row in range(lib.bpf_num_tables(module))]
    descriptors = [lib.bpf_table_fd(module, name) for name in tables]
    programs = {}
    for row in range(lib.bpf_num_functions(module)):
        name = lib.bpf_function_name(module, row)
        start, size = lib.bpf_function_start(module, name), lib.bpf_function_size(module, name)
        code = named_by_place(ctypes.string_at(start, size), descriptors)
        programs[name.decode()] = base64.b64encode(code).decode()
    return {
        "maps": [_map_facts(name.decode(), fd) for name, fd in zip(tables, descriptors, strict=True)],
        "programs": programs,
        "files": [identity(path) for path in sorted({str(bcc.__file__), *_mapped()})],
    }


def named_by_place(code: bytes, descriptors: list[int]) -> bytes:
    """Instructions in which maps are named by their places in ``descriptors``, not by the descriptors.

    Raises:
        ValueError: A map that is neither among them nor from outside.
    """
    changed = bytearray(code)
    for place in range(0, len(code), 8):
        head, number = struct.unpack_from("<H2xI", code, place)
        if head & HEAD == MAP and number < OUTSIDE:
            struct.pack_into("<I", changed, place + 4, descriptors.index(number))
    return bytes(changed)


def _map_facts(name: str, descriptor: int) -> dict[str, Any]:
    """The kernel's parameters of a map that bcc has made, to make another one like it."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    facts = {ours: int(fields[kernels]) for kernels, ours in _MAP_FACTS.items()}
    return {"name": name, **facts, "flags": int(fields["map_flags"], 16)}


def identity(path: str) -> list[str | int]:
    """A key by which an unchanged file is recognised. Raises OSError."""
    found = os.stat(path)
    return [path, found.st_size, found.st_mtime_ns]


def _mapped() -> set[str]:
    """The compiler's libraries that this process has loaded."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    paths = {line.split(None, 5)[5] for line in lines if "/" in line}
    return {path for path in paths if any(part in path for part in _COMPILER)}


def main(shim: str) -> int:
    """Compiles standard input. The reason of a failure is the last line of standard error."""
    try:
        sys.stdout.write(json.dumps(compile_text(sys.stdin.buffer.read(), shim)))
    except NoBccError as error:
        sys.stderr.write(f"{error}\n")
        return NO_BCC
    except Exception as error:  # bcc raises plain Exception
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
