"""C++ names as their authors wrote them, by this machine's C++ library; without it they stay as they are."""

from __future__ import annotations

import ctypes
import re
from functools import cache, lru_cache
from typing import Any

_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")
_MOST_REFERENCES = 40  # to parts before it: each may double the text
_MOST_CHARACTERS = 400
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")


@cache
def _demangler() -> Any:
    for name in _LIBRARIES:
        try:
            function = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
        return function
    return None


@cache
def _free() -> Any:
    function = ctypes.CDLL(None).free
    function.argtypes, function.restype = (ctypes.c_void_p,), None
    return function


@lru_cache(8192)
def demangled(name: str) -> str:
    """The name of a function in C++ (or in Rust's older form); any other name as it is."""
    if not name.startswith("_Z") or "\0" in name or len(_REFERENCE.findall(name)) > _MOST_REFERENCES:
        return name
    function = _demangler()
    if function is None:
        return name
    status = ctypes.c_int()
    text = function(name.encode(errors="replace"), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        if status.value != 0:
            return name
        return ctypes.string_at(text).decode(errors="replace")[:_MOST_CHARACTERS]
    finally:
        _free()(text)
