"""A program: adds one row to the table of functions, and prints what everybody makes of it, as JSON.

``python -m tests.made_up_function GROUP ROW…``: the table is changed before anything reads it.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path


def add_row(group: str, row: str) -> None:
    """Makes ``probes.api`` the module whose text has one row more, among the runtime's of that group."""
    spec = importlib.util.find_spec("probes.api")
    assert spec is not None
    assert spec.origin is not None
    text, begin = Path(spec.origin).read_text(), f'    "{group}": """\n'
    assert begin in text
    module = sys.modules["probes.api"] = importlib.util.module_from_spec(spec)
    exec(compile(text.replace(begin, f"{begin}        {row}\n", 1), spec.origin, "exec"), module.__dict__)


def main() -> None:
    """Prints what is known of the function."""
    group, name, *words = sys.argv[1:]
    add_row(group, " ".join([name, *words]))
    from gputop.analysis.evidence.api_classes import ApiTable, Group, Role, Trait
    from probes import api
    from probes.code.cookies import encode
    from probes.ebpf.degradation import is_minimal
    from probes.proc.used_devices import DeviceCalls
    from tests import items
    from tests.programs import US, closed_by

    op, row = api.OP_OF[name], api.find(f"{name}_ptsz", api.RUNTIME, 12)
    assert row is not None
    table = ApiTable([[row.name, row.layer, row.group] for row in api.BY_OP])
    column = items.call(items.START, US, name)["op"]
    devices = DeviceCalls(complete=lambda _pid: True)
    devices.expect(10)
    told = [facts["cuda_devices"] for _pid, facts in devices.notice(items.call(items.START, US, name, aux=3))]
    said = {
        "row of its probe": encode(row, name) & (api.MAX_ROWS - 1) == op,
        "minimal": is_minimal(encode(row, name)),
        "role": Role(int(table.role[op])).name,
        "group": Group(int(table.group[op])).name,
        "traits": [trait.name for trait in Trait if trait and table.has(column, trait).all()],
        "devices": told,
        "gaps": closed_by(name).gaps(),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
