"""This kernel's layout, kept between starts: reading its types lasts 0.1 to 0.2 s."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from probes.ebpf.build import bpf_cache, btf

_FORM = 1  # of what is kept


def layout_of(path: Path = btf.VMLINUX, folder: Path | None = None) -> btf.KernelLayout:
    """The kept layout of the same type information, or else that of ``btf.read_layout``.

    Raises:
        btf.BtfError: As ``btf.read_layout``.
    """
    folder = folder or bpf_cache.folder_of(os.geteuid(), os.environ)
    try:
        key = _key_of(path.read_bytes())
    except OSError:
        return btf.read_layout(path)  # names the error
    if folder is None:
        return btf.read_layout(path)
    with suppress(bpf_cache.NoCacheError, ValueError, TypeError):
        if kept := bpf_cache.read(folder, key):
            return btf.KernelLayout(**json.loads(kept))
    layout = btf.read_layout(path)
    with suppress(bpf_cache.NoCacheError):  # compiled.py reports the same folder
        bpf_cache.write(folder, key, json.dumps(dataclasses.asdict(layout)).encode())
    return layout


def _key_of(blob: bytes) -> str:
    """By all that goes into a layout."""
    wanted = repr((_FORM, btf.WANTED, btf.OPTIONAL, btf.TYPED_TRACEPOINTS)).encode()
    return hashlib.sha256(b"btf %d %s" % (len(wanted), wanted) + blob).hexdigest()
