"""Offsets in this kernel's structures that the text of the BPF programs needs."""

from __future__ import annotations

from collections.abc import Mapping

from probes.ebpf.build import btf


def task(layout: btf.KernelLayout) -> dict[str, int]:
    """Where a task and its structures have the members of every kernel, and those that some lack.

    Raises:
        BtfError: The type information lacks the number of a task's CPU.
    """
    offsets = layout.offsets
    of_task = {name.split(".")[1]: bits for name, bits in offsets.items() if name.startswith("task_struct.")}
    defines = {
        "TASK_PID": of_task["pid"],
        "TASK_COMM": of_task["comm"],
        "TASK_FLAGS": of_task["flags"],
        "TASK_NVCSW": of_task["nvcsw"],
        "TASK_NIVCSW": of_task["nivcsw"],
        "TASK_MIN_FLT": of_task["min_flt"],
        "TASK_MAJ_FLT": of_task["maj_flt"],
        "TASK_RUN_DELAY": of_task["sched_info"] + offsets["sched_info.run_delay"],
        "TASK_IN_IOWAIT": of_task["in_iowait"],
        "TASK_EXIT_CODE": of_task["exit_code"],
        "TASK_SIGNAL": of_task["signal"],
        "TASK_CPU": _cpu(of_task, offsets),
        "SIGNAL_LIVE": offsets["signal_struct.live"],
    }
    if "thread" in of_task and "thread_struct.fsbase" in offsets:
        defines["TASK_FSBASE"] = of_task["thread"] + offsets["thread_struct.fsbase"]
    if "se" in of_task and "sched_entity.sum_exec_runtime" in offsets:
        defines["TASK_RAN"] = of_task["se"] + offsets["sched_entity.sum_exec_runtime"]
    return defines


def _cpu(of_task: Mapping[str, int], offsets: Mapping[str, int]) -> int:
    if "thread_info.cpu" in offsets:
        return of_task["thread_info"] + offsets["thread_info.cpu"]
    if "cpu" in of_task:
        return of_task["cpu"]
    raise btf.BtfError("the kernel's type information has neither thread_info.cpu nor task_struct.cpu")


def interrupts(layout: btf.KernelLayout) -> dict[str, int]:
    """Where the preemption count is, which shows interrupts; empty where this kernel does not describe it.

    On x86-64 it is a per-CPU variable. Neither its address nor that of a CPU's variables is available
    everywhere (kptr_restrict, kernels without KALLSYMS_ALL), but every task points to its CPU's run queue,
    which is another one: their distance is in the type information.
    """
    offsets, per_cpu = layout.offsets, layout.per_cpu
    if "thread_info.preempt_count" in offsets:
        return {"TASK_PREEMPT": offsets["task_struct.thread_info"] + offsets["thread_info.preempt_count"]}
    count = per_cpu.get("__preempt_count")
    if "pcpu_hot" in per_cpu and "pcpu_hot.preempt_count" in offsets:
        count = per_cpu["pcpu_hot"] + offsets["pcpu_hot.preempt_count"] // 8
    path = ("task_struct.se", "sched_entity.cfs_rq", "cfs_rq.rq", "rq.cpu")
    if count is None or "runqueues" not in per_cpu or not all(step in offsets for step in path):
        return {}
    return {
        "TASK_CFS_RQ": offsets["task_struct.se"] + offsets["sched_entity.cfs_rq"],
        "CFS_RQ_RQ": offsets["cfs_rq.rq"],
        "RQ_CPU": offsets["rq.cpu"],
        "RUNQUEUE_TO_PREEMPT": count - per_cpu["runqueues"],
    }


def throttling(layout: btf.KernelLayout) -> dict[str, int]:
    """Where a thread and its group's run queue have that they are throttled; empty before Linux 6.18."""
    offsets = layout.offsets
    needed = ("task_struct.throttled", "cfs_rq.throttled_clock_self", "cfs_rq.throttled_clock_self_time")
    path = ("task_struct.se", "sched_entity.cfs_rq", "cfs_rq.rq", "rq.clock")
    if not all(name in offsets for name in needed + path):
        return {}
    return {
        "TASK_THROTTLED": offsets["task_struct.throttled"],
        "TASK_CFS_RQ": offsets["task_struct.se"] + offsets["sched_entity.cfs_rq"],
        "CFS_RQ_RQ": offsets["cfs_rq.rq"],
        "CFS_RQ_SINCE": offsets["cfs_rq.throttled_clock_self"],
        "CFS_RQ_THROTTLED_TIME": offsets["cfs_rq.throttled_clock_self_time"],
        "RQ_CLOCK": offsets["rq.clock"],
    }
