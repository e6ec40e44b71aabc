"""Which PyTorch call it was: the pattern of calls, the Python stack and the line's text choose the words."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gputop.analysis.answer.report import Finding
from gputop.analysis.causes import CATALOGUE
from gputop.analysis.chains.call_forms import (
    ADVICE,
    PLAIN_ADVICE,
    PLAIN_TITLES,
    TITLES,
    Form,
    Pattern,
    advice_of,
    first_use,
    form_of_read,
    form_of_send,
    form_of_sync,
    how_often,
    title_of,
)
from gputop.analysis.evidence.api_classes import Role
from gputop.engine.calls.frameworks import Framework
from probes.source import FRAMES, PLACES, Sample
from tests import items
from tests.items import START
from tests.programs import (
    COPY_ASYNC,
    D2H,
    DEVICE_SYNC,
    EVENT_QUERY,
    H2D,
    LAUNCH,
    MAIN,
    SYNC,
    US,
    Program,
    started,
)
from tests.stories.foreign import foreign

TORCH = "/usr/lib/python3.11/site-packages/torch"
AUTOGRAD = 900  # a thread of PyTorch
STEP = 12_000  # us: 4 ms until the wait returns, 8 ms of the host's own work
LINE, OTHER, WITHIN, FAR = (1 << 62 | number for number in range(1, 5))

# -- from pattern to words -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size", "form"),
    [
        ("total += loss.item()", 4, "item"),
        ("rate = table[where]", 8, "lookup"),
        ("names[best.index]", 8, "lookup"),
        ("first = losses[0]", 4, "item"),
        ("if loss > best:", 1, "item"),
        ("value = float(loss)", 8, "item"),
        ("print(f'{loss:.3f}')", 4, "item"),
        ("", 4, "item"),
        ("index = mask.nonzero()", 8, "size"),
        ("kept = torch.masked_select(x, keep)", 4, "size"),
        ("y = x[x > 0]", 8, "size"),
        ("y = x[mask]", 4, "size"),
        ("y = x[x[:, 0] > 0].sum()", 4, "size"),
        ("labels = torch.unique(y)", 8, "size"),
        ("y = x[mask]", 16, "item"),  # no count is so large
        ("n = mask.nonzero().numel().item()", 8, "item"),
        ("host = loss.cpu()", 4, "read"),
        ("row = index.to('cpu')", 8, "read"),
        ("row = index.cpu().numpy()", 4096, "read"),
        ("y = x[mask]", 4096, "read"),
        ("", 4096, "read"),
    ],
)
def test_the_text_of_the_line_chooses_among_what_the_size_allows(text: str, size: int, form: Form) -> None:
    assert form_of_read(Pattern(size=size, to_host=True, text=text)) == form


def test_without_text_the_next_launch_of_the_same_line_distinguishes_a_size_from_a_value() -> None:
    assert form_of_read(Pattern(size=8, same_line=True)) == "size"
    assert form_of_read(Pattern(size=8, same_line=True, text="x = y.sum().item()")) == "item"
    assert form_of_read(Pattern(size=2, same_line=True)) == "item"


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("_tensor_str.py", "print"),
        ("amp/grad_scaler.py", "scaler"),
        ("cuda/amp/grad_scaler.py", "scaler"),
        ("nn/utils/clip_grad.py", "clip"),
        ("serialization.py", "save"),
        ("optim/adam.py", "item"),
    ],
)
def test_files_of_pytorch_on_the_stack_show_who_reads(file: str, form: Form) -> None:
    files = frozenset({"/app/train.py", f"{TORCH}/{file}"})
    assert form_of_read(Pattern(size=4, files=files, text="scaler.step(optimizer)")) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("x = x.to(device)", "batch"),
        ("x, y = batch[0].cuda(), batch[1].cuda()", "batch"),
        ("t = torch.tensor([1, 2], device='cuda')", "batch"),
        ("kept = features[index]", "index"),
        ("kept = features[batch.index]", "index"),
        ("kept = features[1:5]", "batch"),
        ("kept = features.index_select(0, index)", "index"),
        ("", "batch"),
    ],
)
def test_an_index_is_distinguished_from_what_is_moved_on_purpose(text: str, form: Form) -> None:
    assert form_of_send(Pattern(size=4096, text=text)) == form


@pytest.mark.parametrize(
    ("role", "form"),
    [(Role.PROVE_DEVICE, "device"), (Role.PROVE_EVENT, "event"), (Role.PROVE_STREAM, "stream")],
)
def test_pytorch_s_synchronisations_have_their_names_and_others_none(role: Role, form: Form) -> None:
    assert form_of_sync(Pattern(role=role, files=frozenset({f"{TORCH}/cuda/__init__.py"}))) == form
    assert form_of_sync(Pattern(role=role, text="torch.cuda.synchronize()")) == form
    assert form_of_sync(Pattern(role=role)) == "sync"


def test_how_often_is_reported_in_steps() -> None:
    asked = [how_often(times) for times in (None, 16.0, 1.0, 0.9, 0.5, 0.1)]
    assert asked == ["in the loop", *["every step"] * 3, "every 2 steps", "every 10 steps"]
    assert title_of("item", 0.1) == "`.item()` every 10 steps"


@pytest.mark.parametrize(
    ("file", "loaded"),
    [
        (f"{TORCH}/nn/modules/module.py", {Framework.TORCH, Framework.PYTHON}),
        ("/x/torch/lib/libtorch_cuda.so", {Framework.TORCH}),
        ("/x/site-packages/numba_cuda/numba/cuda/dispatcher.py", {Framework.NUMBA, Framework.PYTHON}),
        ("/x/site-packages/cupy/_core/core.so", {Framework.CUPY}),
        ("/home/me/torchlight/main.py", {Framework.PYTHON}),
        ("/home/me/solver", set()),
    ],
)
def test_what_a_process_has_loaded_is_told_by_its_stacks(file: str, loaded: set[Framework]) -> None:
    made = told(started(), (LINE, [[file, 1, "f"]]))
    made.samples.pop()  # the name of a thread
    made.call(LAUNCH, 0, 10)
    assert made.evidence().frameworks(MAIN) == loaded
    assert made.evidence().frameworks(MAIN + 1) == set()


def test_a_program_without_pytorch_is_advised_in_the_words_of_cuda() -> None:
    found = idle(program(WORK, SEND, WAITS))
    assert found.title == "blocking host-to-device copy every step"
    assert not foreign(" ".join((found.title, *found.advice)), ("python",))


def test_every_form_has_a_title_and_advice_that_can_be_said() -> None:
    assert set(TITLES) == set(ADVICE)
    assert set(PLAIN_TITLES) == set(PLAIN_ADVICE)
    for form in TITLES:
        texts = (title_of(form, 1), *advice_of(form, size="4 bytes", times="1.0 times a step"))
        assert not any("{" in text for text in texts)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["<frozen importlib._bootstrap>", "/torch/_dynamo/__init__.py"], "imports modules"),
        ([f"{TORCH}/_inductor/graph.py"], "compiles (torch.compile)"),
        (["/x/triton/compiler.py"], "compiles a Triton kernel"),
        (["/app/train.py", f"{TORCH}/optim/adam.py"], ""),
    ],
)
def test_what_is_done_once_is_known_by_its_files(files: list[str], words: str) -> None:
    assert first_use(frozenset(files)) == words


# -- from calls to findings ------------------------------------------------------------------------


def program(*parts: tuple[int, str, dict[str, int]], steps: int = 30) -> Program:
    """Steps of calls: (us within the step, function, what else); each takes 5 us, or until ``until``."""
    made = started()
    made.samples.append(items.names(START, {MAIN: "python"}))
    for begin in range(0, steps * STEP, STEP):
        for at, op, more in parts:
            rest = dict(more)
            until = rest.pop("until", at + 5)
            made.call(op, begin + at, begin + until, **rest)
    made.call(LAUNCH, steps * STEP, steps * STEP + 5)
    return made


def told(made: Program, *frames: tuple[int, list[list[object]]]) -> Program:
    """The same with what its stacks are."""
    data = {"pid": [MAIN] * len(frames), "stack": [stack for stack, _ in frames]}
    made.samples.append(Sample(FRAMES, START, data | {"frames": [rows for _, rows in frames]}))
    made.samples.append(items.names(START, {AUTOGRAD: "pt_autograd_0"}))
    return made


def at(file: object, line: int = 1, *library: str) -> list[list[object]]:
    """A stack: files of PyTorch, then a line of the program."""
    return [*[[f"{TORCH}/{name}", 9, "f"] for name in library], [str(file), line, "main"]]


def idle(made: Program) -> Finding:
    (found,) = (one for one in made.report().findings if one.kind == "idle")
    return found


SEND = (10, COPY_ASYNC, {"kind": H2D, "bytes": 1 << 20, "stack": LINE})
WAITS = (20, SYNC, {"until": 4000, "stack": LINE})
WORK = (0, LAUNCH, {})


def test_a_blocking_move_is_no_explicit_synchronisation() -> None:
    found = idle(told(program(WORK, SEND, WAITS)))
    assert (found.cause, found.title) == (
        "C27",
        "blocking host-to-device copy every step (`.to(device)`, `.cuda()`)",
    )
    assert "non_blocking=True" in found.advice[0]
    assert "1.0M are copied" in found.advice[0]


def test_a_synchronisation_at_a_line_of_its_own_is_explicit() -> None:
    made = program(WORK, SEND, (20, SYNC, {"until": 4000, "stack": OTHER}))
    frames = (LINE, at("/app/train.py", 3)), (OTHER, at("/app/train.py", 7, "cuda/streams.py"))
    found = idle(told(made, *frames))
    assert (found.cause, found.title) == ("C03", "`stream.synchronize()` every step")
    same = (LINE, at("/app/train.py", 3)), (OTHER, at("/app/train.py", 3))
    assert (
        idle(told(program(*((WORK, SEND, (20, SYNC, {"until": 4000, "stack": OTHER})))), *same)).cause
        == "C27"
    )


def test_a_device_synchronisation_after_a_copy_is_explicit() -> None:
    assert idle(program(WORK, SEND, (20, DEVICE_SYNC, {"until": 4000}))).cause == "C03"


def test_what_came_back_before_is_not_what_a_move_waits_for() -> None:
    read = (2, COPY_ASYNC, {"kind": D2H, "bytes": 4})
    assert idle(program(WORK, read, SEND, WAITS)).cause == "C27"


def source(folder: Path, text: str) -> Path:
    """A file of one line, older than the recording."""
    file = folder / "train.py"
    file.write_text(text + "\n")
    long_ago = items.HEADER["clock"]["realtime_ns"] // 10**9 - 1000
    os.utime(file, (long_ago, long_ago))
    return file


def test_the_line_s_text_is_read_where_this_machine_has_it(tmp_path: Path) -> None:
    made = told(program(WORK, SEND, WAITS), (LINE, at(source(tmp_path, "kept = x[index]"))))
    assert idle(made).title == "index tensor copied to the device every step (`x[idx]`)"


def test_a_file_that_was_changed_since_says_nothing(tmp_path: Path) -> None:
    file = source(tmp_path, "kept = x[index]")
    os.utime(file, (time.time(), time.time()))
    made = told(program(WORK, SEND, WAITS), (LINE, at(file)))
    assert idle(made).title.startswith("blocking host-to-device copy")


def test_a_mask_s_size_is_reported_by_the_line_of_the_next_launch() -> None:
    read = (10, COPY_ASYNC, {"kind": D2H, "bytes": 8, "stack": LINE})
    made = program((0, LAUNCH, {"stack": LINE}), read, WAITS)
    made.records[-1]["stack"] = LINE
    found = idle(told(made, (LINE, at("/gone/train.py"))))
    assert (found.cause, found.title) == ("C01", "size of a result read every step (`nonzero`, boolean mask)")
    apart = program(WORK, read, WAITS)
    assert idle(told(apart, (LINE, at("/gone/train.py")))).title == "`.item()` every step"


def test_a_few_reads_of_the_formatter_are_a_print() -> None:
    read = (10, COPY_ASYNC, {"kind": D2H, "bytes": 4, "stack": LINE})
    found = idle(told(program(WORK, read, WAITS), (LINE, at("/app/train.py", 5, "_tensor_str.py"))))
    assert (found.cause, found.title) == ("C07", "`print(tensor)` every step")


# -- tensors made on the CPU and moved -------------------------------------------------------------


def moves(count: int, size: int, stack: int = LINE) -> Program:
    """Steps that make and move ``count`` tensors, one every 200 us, and then wait for the GPU."""
    parts: list[tuple[int, str, dict[str, int]]] = [WORK]
    for number in range(count):
        send = {"kind": H2D, "bytes": size, "stack": stack}
        parts.append((1000 + number * 200, COPY_ASYNC, send))
        parts.append((1006 + number * 200, SYNC, {"stack": stack}))
    return program(*parts)


def causes(made: Program) -> dict[str, str]:
    return {found.cause: found.title for found in made.report().findings if found.kind == "idle"}


MADE = "tensors made on the CPU and moved every step (`.to(device)`)"


def test_large_tensors_that_are_moved_many_times_a_step_are_no_batch() -> None:
    assert causes(told(moves(16, 1 << 20), (LINE, at("/app/pool.py", 8))))["C05"] == MADE


def test_a_batch_of_a_few_parts_is_the_loader_s() -> None:
    found = causes(told(moves(4, 1 << 20), (LINE, at("/app/train.py", 8))))
    assert "C12" in found
    assert "C05" not in found


def test_what_pytorch_s_loader_moves_is_the_loader_s_however_often() -> None:
    loader = at("/app/train.py", 8, "utils/data/_utils/pin_memory.py")
    assert "C05" not in causes(told(moves(16, 1 << 20), (LINE, loader)))


def test_small_ones_need_no_line() -> None:
    assert causes(moves(25, 2048))["C05"] == "many small host-to-device copies"


# -- queries ---------------------------------------------------------------------------------------


def test_a_query_that_succeeds_is_no_wait_but_polling_is() -> None:
    """The allocator of pinned memory asks once for each block; ``while not event.query()`` asks until."""
    record = (6, "cudaEventRecord", {"aux": 5})
    asks = (4000, EVENT_QUERY, {"aux": 5})
    found = idle(program(WORK, record, asks))
    assert (found.cause, found.title) == ("C28", "host work between launches")
    polls = (3990, EVENT_QUERY, {"aux": 5, "ret": 600})
    assert idle(program(WORK, record, polls, asks)).cause == "C03"


# -- several lines, first uses ---------------------------------------------------------------------


def test_a_loss_at_several_lines_names_each_and_is_at_the_one_that_costs_most() -> None:
    made = started()
    for begin in range(0, 60 * STEP, STEP):
        stack, long = (LINE, 0) if begin // STEP % 2 else (OTHER, 2000)
        made.call(LAUNCH, begin, begin + 5)
        made.call(COPY_ASYNC, begin + 10, begin + 15, kind=D2H, bytes=400, stack=stack)
        # the wait that takes longer is not the one after which more is lost
        made.call(SYNC, begin + 20, begin + 4000 + long, stack=stack)
    made.call(LAUNCH, 60 * STEP, 60 * STEP + 5)
    frames = (LINE, at("/app/mask.py", 3)), (OTHER, at("/app/mask.py", 9))
    found = idle(told(made, *frames))
    assert found.cause == "C02"
    assert found.line is not None
    assert found.line.brief == "mask.py:3"
    assert found.evidence[-1] == "at mask.py:3 in main() 57 %, mask.py:9 in main() 43 %"


def outlier(ms: dict[int, int], steps: int = 40, usual_us: int = 1000) -> Program:
    """Steps with a wait and 1 ms of the host's own work; in some of them so many ms."""
    made, now = started(), 0
    for number in range(steps):
        made.call(LAUNCH, now, now + 10)
        made.call(SYNC, now + 20, now + 4000)
        now += 4000 + ms.get(number, 0) * 1000 + usual_us
    made.call(LAUNCH, now, now + 10)
    return made


def events(made: Program) -> list[int]:
    """How long the events are, in ms."""
    return sorted(event.ns // 1_000_000 for event in made.report().events)


def test_first_uses_are_events_however_many_there_are() -> None:
    made = outlier({0: 1400, 1: 900, 2: 6000})
    assert events(made) == [901, 1401, 6001]


def test_a_long_one_now_and_then_repeats() -> None:
    assert events(outlier({8: 300, 16: 300, 24: 300, 32: 300})) == []
    assert events(outlier({0: 4000, 8: 300, 16: 300, 24: 300, 32: 300})) == [4001]


def test_one_that_outweighs_all_others_is_an_event() -> None:
    """Six times as long as usual, and more than all the others together."""
    made = outlier({1: 1200}, steps=5, usual_us=200_000)
    assert events(made) == [1400]
    assert made.report().findings[0].gaps == 4


def test_a_first_use_says_what_it_does_and_where() -> None:
    made = outlier({0: 1400})
    frames: list[list[object]] = [
        ["<frozen importlib._bootstrap>", 1, "_load"],
        [f"{TORCH}/_dynamo/__init__.py", 1, "f"],
        ["/app/train.py", 12, "main"],
    ]
    told(made, (FAR, frames))
    times = [START + (100_000 + number * 20_000) * US for number in range(50)]
    places = {"time": times, "tid": [MAIN] * len(times), "stack": [FAR] * len(times)}
    made.samples.append(Sample(PLACES, START, places))
    (event,) = made.report().events
    assert event.title == "first use: imports modules"
    assert event.line is not None
    assert event.line.brief == "train.py:12"
    assert event.text().endswith("first use: imports modules at train.py:12")


def test_titles_of_the_catalogue_are_those_of_a_usual_claim() -> None:
    titles = {cause.number: cause.title for cause in CATALOGUE}
    usual: tuple[tuple[str, Form], ...] = (
        ("C01", "item"),
        ("C02", "read"),
        ("C03", "sync"),
        ("C27", "batch"),
    )
    for number, form in usual:
        assert titles[number] == title_of(form, 1)
