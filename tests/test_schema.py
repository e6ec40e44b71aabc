"""The C structures of the BPF programs and the numpy types of the reader are one layout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from probes import schema
from probes.schema import ALIASED, RECORD

TYPES = "#include <stdint.h>\n#include <stdio.h>\n#include <stddef.h>\n" + "".join(
    f"typedef {c} {name};\n"
    for name, c in {
        "u64": "uint64_t",
        "s64": "int64_t",
        "u32": "uint32_t",
        "s32": "int32_t",
        "u16": "uint16_t",
        "u8": "uint8_t",
    }.items()
)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_compiler_lays_the_structures_out_as_numpy_does(tmp_path: Path) -> None:
    layouts = {
        "record": RECORD,
        "call": schema.CALL_STATE_DTYPE,
        "thread": schema.THREAD_STATE_DTYPE,
        "cpu": schema.CPU_STATE_DTYPE,
    }
    lines, truth = [], []
    for name, dtype in layouts.items():
        lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
        truth.append(dtype.itemsize)
        assert dtype.fields is not None
        for member, (_type, offset, *_) in dtype.fields.items():
            lines.append(f'printf("%zu\\n", offsetof(struct {name}, {member}));')
            truth.append(offset)
    source = tmp_path / "layout.c"
    source.write_text(f"{TYPES}{schema.c_header()}int main(void) {{ {' '.join(lines)} return 0; }}\n")
    subprocess.run(["cc", "-o", tmp_path / "layout", source], check=True)
    printed = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in printed.split()] == truth


def test_aliases_show_the_same_bytes() -> None:
    record = schema.empty(1)
    record["stream"] = 7 | 9 << 32
    row = record.view(ALIASED)[0]
    assert (row["waker_pid"], row["waker_tid"]) == (7, 9)


def test_select_keeps_order_and_every_column() -> None:
    records = np.frombuffer(np.random.default_rng(1).bytes(100 * RECORD.itemsize), RECORD)
    mask = records["pid"] % 2 == 0
    assert schema.select(records, mask).tobytes() == records[mask].tobytes()
