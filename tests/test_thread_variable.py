"""Where threads have a variable is read from code as compilers make it; the program says what is true."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from pathlib import Path

import pytest

from probes.code import elf
from probes.code.layout import TLS_MODULE_BYTES, TLS_MODULES
from probes.code.thread_variable import Variable, returned
from probes.files import maps, untrusted_files

_SOURCE = """
#include <pthread.h>
#include <stdio.h>
static __thread long before[5] = {1, 2, 3, 4, 5};
static __thread void *state;
__attribute__((noinline, visibility("default"))) void *get_state(void) { return STATEMENT; }
__attribute__((visibility("default"))) void *place(long n) { state = &before[n]; return &state; }
#ifdef MAIN
int main(void)
{
	printf("%ld\\n", (long)pthread_self() - (long)place(1));
	return get_state() != &before[1];
}
#endif
"""
_PLAIN, _OTHER = "-DSTATEMENT=state", '-DSTATEMENT=(puts("asked"),state)'
_FRAMES = ("-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer")
_WAYS = {
    "usual": ("-O2",),
    "with frame pointers": ("-O2", *_FRAMES),
    "checked branches": ("-O2", "-fcf-protection=full"),
    "for debugging": ("-Og",),
}


def compiled(folder: Path, *flags: str) -> Path:
    """What a compiler makes of it."""
    source, made = folder / "state.c", folder / "state"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-pthread", *flags, "-o", made, source], check=True)
    return made


def found(path: Path) -> Variable | None:
    with untrusted_files.opened(path) as file:
        image = elf.Image(file)
        return returned(image, image.objects(["get_state"])["get_state"].address)


@pytest.mark.parametrize("pic", ["-no-pie", "-pie"])
@pytest.mark.parametrize("way", _WAYS)
def test_a_program_has_it_before_the_thread_s_own_block(way: str, pic: str, tmp_path: Path) -> None:
    flags = ("-fPIC",) if pic == "-pie" else ()  # the linker then changes what the compiler wrote
    path = compiled(tmp_path, "-DMAIN", _PLAIN, pic, *flags, *_WAYS[way])
    said = subprocess.run([path], capture_output=True, text=True, check=True).stdout
    assert found(path) == Variable(0, int(said))


@pytest.mark.parametrize("way", [*_WAYS, "without stubs"])
def test_a_library_has_it_in_the_block_of_its_module(way: str, tmp_path: Path) -> None:
    path = compiled(tmp_path, _PLAIN, "-shared", "-fPIC", *_WAYS.get(way, ("-O2", "-fno-plt")))
    variable = found(path)
    assert variable is not None
    opened = ctypes.CDLL(str(path))
    opened.place.restype = ctypes.c_void_p
    (bias,) = {
        one.span[0] - one.offset for one in maps.executable(os.getpid()) if os.path.realpath(path) == one.path
    }
    itself = ctypes.CDLL(None).pthread_self
    itself.restype = ctypes.c_ulong
    address = opened.place(ctypes.c_long(2))  # only who asks for it has it
    module = _word(bias + variable.module)
    block = _word(_word(itself() + TLS_MODULES) + TLS_MODULE_BYTES * module)
    assert block + variable.offset == address


def _word(address: int) -> int:
    return int(struct.unpack("<Q", ctypes.string_at(address, 8))[0])


@pytest.mark.parametrize("kind", [("-shared", "-fPIC"), ("-DMAIN",)])
def test_a_function_that_does_something_else_shows_nothing(kind: tuple[str, ...], tmp_path: Path) -> None:
    assert found(compiled(tmp_path, _OTHER, "-O2", *kind)) is None
    assert found(compiled(tmp_path, "-DSTATEMENT=(void*)before[3]", "-O2", *kind)) is not None
    assert found(compiled(tmp_path, "-DSTATEMENT=&state", "-O2", *kind)) is None
    assert found(compiled(tmp_path, "-DSTATEMENT=0", "-O2", *kind)) is None
