"""Where a file keeps a variable of each thread: read from the code of a function that just returns it.

Such a variable has no address, and local ones have no symbol in a stripped file. Compilers reach it in two
ways (U. Drepper, ELF Handling For Thread-Local Storage, chapter 4): a program by a fixed distance from the
thread's FS base; a library by the block of its module, whose number the loader writes into a word of the
library, and the place in there. The result is a guess until a thread's state is found there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.code import elf

_CODE_BYTES = 64
_MOST_ADDRESS = 1 << 63
# endbr64, and a frame that is made: push %rbp, mov %rsp,%rbp, sub $n,%rsp; and undone: leave, add, pop %rbp
_BEGIN = rb"(?:\xf3\x0f\x1e\xfa)?(?:\x55)?(?:\x48\x89\xe5)?(?:\x48\x83\xec.)?"
_END = rb"(?:\xc9|\x48\x83\xc4.|\x5d)*"
_LOAD = _END + rb"\x48\x8b(?:\x80(?P<far>.{4})|\x40(?P<near>.))" + _END + rb"\xc3"  # mov n(%rax),%rax; ret
_FORMS = tuple(
    re.compile(_BEGIN + form, re.DOTALL)
    for form in (
        rb"\x64\x48\x8b\x04\x25(?P<from_fs>(?!\0{4}).{4})" + _END + rb"\xc3",  # mov %fs:n,%rax
        rb"\x66*\x64\x48\x8b\x04\x25\0{4}" + _LOAD,  # mov %fs:0,%rax: what a linker makes of the next one
        # lea module(%rip),%rdi; call __tls_get_addr, by its stub or by its pointer
        rb"\x48\x8d\x3d(?P<module>.{4})(?:\x67?\xe8|\xff\x15).{4}" + _LOAD,
    )
)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that each thread has."""

    module: int  # address of the word that will hold the module's number; 0: the program's own variable
    offset: int  # bytes from where the module's block begins; of a program's own back from the FS base


def returned(image: elf.Image, function: int) -> Variable | None:
    """The variable that the function at this address of a file returns; None where it is not of that kind."""
    code = image.read(function, _CODE_BYTES)
    match = next(filter(None, (form.match(code) for form in _FORMS)), None)
    if match is None:
        return None
    parts = {
        name: int.from_bytes(part, "little", signed=True)
        for name, part in match.groupdict().items()
        if part is not None
    }
    offset = next(value for name, value in parts.items() if name != "module")
    if "module" not in parts:
        return Variable(0, -offset) if offset < 0 else None
    module = function + match.end("module") + parts["module"]  # from the next instruction on
    return Variable(module, offset) if 0 < module < _MOST_ADDRESS and offset >= 0 else None
