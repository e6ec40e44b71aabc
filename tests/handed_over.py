"""Messages as the library inside a program hands them over, and what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from probes import api, schema
from probes.activities import activity_rows
from probes.inside.intake import Inside
from probes.inside.messages import CLOCK, HEADER, RECORD, ROW, VERSION, Message
from probes.source import PROCESS

NOW, PID, TID = 10_000_000_000, 40, 41
AHEAD = 1_700_000_000_000_000_000  # CUPTI's clock before ours


def message(kind: int, body: bytes = b"", count: int = 0, number: int = 0, **header: int) -> bytes:
    made = np.zeros(1, HEADER)
    made["version"], made["message"], made["pid"] = VERSION, kind, PID
    made["count"], made["number"] = count, number
    for name, value in header.items():
        made[name] = value
    record = np.zeros(1, RECORD)
    record["time"], record["pid"], record["tid"] = NOW, PID, TID
    record["bytes"] = HEADER.itemsize + len(body)
    return bytes(record.tobytes() + made.tobytes() + body)


def rows(*told: dict[str, int], **header: int) -> bytes:
    table = np.zeros(len(told), ROW)
    for place, row in enumerate(told):
        for name, value in row.items():
            table[name][place] = value
    return message(Message.ROWS, table.tobytes(), len(told), **header)


def moment(at: int, ahead: int = AHEAD) -> bytes:
    clock = np.zeros(1, CLOCK)
    clock["monotonic"], clock["cupti"], clock["error"] = at, at + ahead, 40
    return message(Message.CLOCK, clock.tobytes(), 1)


def call(begin: int, end: int, op: str = "") -> schema.Records:
    records = schema.empty(1)
    records["op"] = api.OP_OF[op] if op else 0
    records["kind"], records["pid"], records["tid"] = schema.Kind.CALL, PID, TID
    records["t_end"], records["duration"] = end, end - begin
    return records


def told(inside: Inside, now: int = NOW, *, last: bool = False) -> list[dict[str, Any]]:
    found = []
    for sample in inside.at_mark(now, None, last=last):
        if sample.kind == PROCESS:
            continue
        table, texts = activity_rows(sample.data)
        for row in table:
            named = {name: int(row[name]) for name in table.dtype.names or ()}
            found.append(named | {name: texts[int(row[name])] for name in ("what", "name", "detail")})
    return found
