"""What is made of messages of the library inside a program: joined, on one clock; of any bytes no harm."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from probes import api
from probes.inside.intake import Inside
from probes.inside.messages import RECORD, ROW, InsideState, Message, What
from probes.source import PROBLEM, PROCESS, Sample
from tests.handed_over import AHEAD, NOW, PID, TID, call, message, moment, rows, told


def test_a_kernel_gets_the_begin_of_the_call_around_its_own_and_times_of_our_clock() -> None:
    inside = Inside(lambda sample: None)
    for one in (moment(NOW - 2_000_000), moment(NOW - 1_000_000, AHEAD + 500)):
        inside.hear(one)
    inside.hear(message(Message.TEXT, b"_Z4gemmv", 8, 3))
    at = NOW - 1_500_000
    kernel = {"what": What.KERNEL, "begin": at + AHEAD + 250, "end": at + 1000 + AHEAD + 250, "name": 3}
    given_by = {"what": What.CALL, "begin": at - 4000 + AHEAD + 250, "end": at + AHEAD, "thread": TID}
    inside.hear(rows(kernel | {"correlation": 9}, given_by | {"correlation": 9}))
    inside.notice(call(at - 9000, at - 6000))
    inside.notice(call(at - 5000, at - 1000))
    (row,) = told(inside)
    assert (row["what"], row["name"]) == ("kernel", "gemm()")
    assert abs(row["begin"] - at) <= 2
    assert row["end"] - row["begin"] == 1000
    assert (row["call_tid"], row["call_begin"]) == (TID, at - 5000)
    assert inside.mark_counts() == [1, NOW]


def test_work_whose_call_is_not_known_yet_waits_for_it() -> None:
    inside = Inside(lambda sample: None)
    inside.hear(moment(NOW - 1000, 0))
    inside.hear(rows({"what": What.FILL, "begin": NOW - 900, "end": NOW - 800, "correlation": 1}))
    assert told(inside) == []
    inside.notice(call(NOW - 2000, NOW - 950))
    inside.hear(
        rows(
            {"what": What.CALL, "begin": NOW - 1500, "end": NOW - 950, "thread": TID, "correlation": 1},
            before=1,
        )
    )
    (row,) = told(inside)
    assert (row["name"], row["call_begin"]) == ("Memset", NOW - 2000)


def test_ranges_have_their_thread_domain_and_payload() -> None:
    inside = Inside(lambda sample: None)
    for number, text in ((1, b"step"), (2, b"mine")):
        inside.hear(message(Message.TEXT, text, len(text), number))
    value = int(np.float64(2.5).view(np.uint64))
    inside.hear(
        rows(
            {"what": What.RANGE, "begin": NOW - 90, "end": NOW - 50, "name": 1, "thread": TID, "stream": 2},
            {
                "what": What.SPAN,
                "begin": NOW - 80,
                "end": NOW - 40,
                "name": 1,
                "thread": TID,
                "detail": 3,
                "bytes": value,
            },
        )
    )
    one, other = told(inside)
    assert (one["what"], one["name"], one["tid"], one["detail"]) == ("range", "step", TID, "domain mine")
    assert (other["what"], other["detail"]) == ("span", "payload 2.5")


def test_rows_that_did_not_come_are_told_to_the_mark() -> None:
    inside = Inside(lambda sample: None)
    inside.hear(rows(before=72, flushed=NOW - 5))
    assert told(inside) == []
    assert inside.mark_counts() == [72, NOW]
    told(inside)
    assert inside.mark_counts() == []
    inside.hear(rows(before=80))
    told(inside)
    assert inside.mark_counts() == [8, NOW - 5]


def test_a_refusal_is_a_sentence_that_names_the_process() -> None:
    said: list[Sample] = []
    inside = Inside(said.append)
    inside.hear(message(Message.STATE, b"no libcupti.so was found", 24, InsideState.REFUSED))
    (problem,) = [sample.data["text"] for sample in said if sample.kind == PROBLEM]
    assert problem == "process 40 starts without --inside's exact kernels: no libcupti.so was found"


def test_launches_of_which_cupti_reports_nothing_mean_that_another_client_has_it() -> None:
    said: list[Sample] = []
    inside = Inside(said.append)
    inside.hear(message(Message.STATE, b"26", 2, InsideState.ON))
    launch = [row.argument for row in api.BY_OP].index("kernel")
    for number in range(8):
        records = call(NOW + 1000 * number + 100, NOW + 1000 * number + 600)
        records["op"] = launch
        inside.notice(records)
    later = bytearray(rows(flushed=NOW + 50_000))
    later[:8] = np.uint64(NOW + 60_000).tobytes()
    inside.hear(bytes(later))
    told(inside, NOW + 100_000)
    assert [sample for sample in said if sample.kind == PROBLEM] == []  # they may still come
    told(inside, NOW + 200_000, last=True)
    (problem,) = [sample.data["text"] for sample in said if sample.kind == PROBLEM]
    assert "goes on without --inside's exact kernels: another CUPTI client" in problem


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.builds(
                lambda kind, body, count, number, before: message(kind, body, count, number, before=before),
                st.integers(0, 9),
                st.binary(max_size=3 * ROW.itemsize),
                st.integers(0, (1 << 32) - 1),
                st.integers(0, (1 << 32) - 1),
                st.integers(0, (1 << 64) - 1),
            ),
        ),
        max_size=8,
    )
)
def test_of_any_bytes_no_harm_comes(messages: list[bytes]) -> None:
    inside = Inside(lambda sample: None)
    for one in messages:
        inside.hear(one)
    inside.notice(call(NOW - 10, NOW))
    for row in told(inside, last=True):
        assert 0 < row["begin"] <= row["end"] < NOW + 2_000_000_000
    assert all(0 <= number < 1 << 63 for number in inside.mark_counts())


def test_launches_that_are_captured_are_no_sign_that_another_client_has_cupti() -> None:
    heard: list[Sample] = []
    for captured in (True, False):
        heard.clear()
        inside = Inside(heard.append)
        inside.hear(moment(NOW - 9_000_000))
        inside.hear(message(Message.STATE, number=InsideState.ON))
        inside.hear(rows(flushed=NOW))
        at = NOW + 1_000
        if captured:
            inside.notice(call(at, at + 100, "cudaStreamBeginCapture"))
        for place in range(1, 30):
            inside.notice(call(at + 1_000 * place, at + 1_000 * place + 500, "cudaLaunchKernel"))
        if captured:
            inside.notice(call(at + 40_000, at + 40_100, "cudaStreamEndCapture"))
        later = bytearray(rows(flushed=NOW + 5_000_000))
        later[: RECORD.itemsize] = at_time(NOW + 6_000_000, later)
        inside.hear(bytes(later))
        list(inside.at_mark(NOW + 7_000_000, None, last=True))
        assert bool([one for one in heard if one.kind == PROBLEM]) is not captured


def at_time(time_ns: int, body: bytearray) -> bytes:
    record = np.frombuffer(bytes(body[: RECORD.itemsize]), RECORD).copy()
    record["time"] = time_ns
    return bytes(record.tobytes())


def test_how_far_clocks_may_be_off_is_reported_before_the_end() -> None:
    inside = Inside(lambda sample: None)
    inside.hear(moment(NOW - 1_000_000))
    inside.hear(rows({"what": What.KERNEL, "begin": NOW + AHEAD - 900, "end": NOW + AHEAD - 100}))
    told_samples = [one for one in inside.at_mark(NOW, None) if one.kind == PROCESS]
    assert [one.data for one in told_samples] == [{"pid": PID, "inside_error_ns": 40}]
    assert not [one for one in inside.at_mark(NOW + 1, None) if one.kind == PROCESS]
