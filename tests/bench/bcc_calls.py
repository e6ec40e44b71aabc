"""Takes each call of some functions as tools made with bcc do: bcc_calls.py LIBRARY ring|perf FUNCTION…

Says "ready", and at SIGINT how many calls have come and how many the buffer lost.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from probes.ebpf.build.compiled import SHIM
from probes.ebpf.build.compiler import FLAGS, import_bcc

_TEXT = """
#include <uapi/linux/ptrace.h>
struct event { u64 start, duration; u32 pid, tid; };
BPF_HASH(begun, u32, u64, 1024);
BUFFER
int entered(void *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	u64 now = bpf_ktime_get_ns();
	begun.update(&tid, &now);
	return 0;
}
int returned(void *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id;
	u64 *start = begun.lookup(&tid);
	struct event e = {};
	if (!start)
		return 0;
	e.start = *start;
	e.duration = bpf_ktime_get_ns() - *start;
	e.pid = id >> 32;
	e.tid = tid;
	SEND
	return 0;
}
"""
_BUFFERS = {
    "ring": ("BPF_RINGBUF_OUTPUT(events, 4096);", "events.ringbuf_output(&e, sizeof(e), 0);"),
    "perf": ("BPF_PERF_OUTPUT(events);", "events.perf_submit(ctx, &e, sizeof(e));"),
}


def main(library: str, kind: str, *functions: str) -> None:
    """Goes on until SIGINT."""
    bcc: Any = import_bcc()
    os.environ["BCC_KERNEL_SOURCE"] = str(SHIM)  # in place of the kernel's headers
    buffer, send = _BUFFERS[kind]
    module = bcc.BPF(text=_TEXT.replace("BUFFER", buffer).replace("SEND", send), cflags=list(FLAGS))
    came = lost = 0

    def take(*_event: object) -> None:
        nonlocal came
        came += 1

    def miss(count: int) -> None:
        nonlocal lost
        lost += count

    if kind == "ring":
        module["events"].open_ring_buffer(take)
    else:
        module["events"].open_perf_buffer(take, page_cnt=1024, lost_cb=miss)
    poll = module.ring_buffer_poll if kind == "ring" else module.perf_buffer_poll
    for name in functions:
        module.attach_uprobe(name=library, sym=name, fn_name="entered")
        module.attach_uretprobe(name=library, sym=name, fn_name="returned")
    going = True

    def stop(*_signal: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGINT, stop)
    print("ready", flush=True)
    while going:
        poll(50)
    poll(200)
    print(came, lost, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
