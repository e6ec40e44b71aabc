"""One frame as text for a log or a pipe."""

from __future__ import annotations

from dataclasses import replace

from gputop.commands.screen.text import render_text
from gputop.format import width_of
from tests import fake_frames as fake


def test_everything_is_in_the_text() -> None:
    text = render_text(fake.frame(processes=2, problems=("no root",)), width=None)
    for part in ("lost 0", "no root", "H100", "▲ storm 4242 python", "stress-ng 61% · python 22%",
                 "calls of 4242 python", "cudaMemcpyAsync", "threads of 4242 python",
                 "pt_data_1"):  # fmt: skip
        assert part in text


def test_there_are_no_escape_codes_and_no_wide_lines() -> None:
    frame = fake.frame(processes=2)
    hostile = replace(frame.processes[0], name="\x1b[2J[red]x", command="a\nb")
    text = render_text(replace(frame, processes=(hostile,)), width=80)
    assert "\x1b" not in text
    assert "[red]x" in text
    assert max(width_of(line) for line in text.splitlines()) <= 80
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_sentence_goes_on_in_the_next_line_where_a_table_is_cut() -> None:
    command = "to see them: /a/long/path/of/a/virtual/environment/bin/gputop (as root)"
    frame = fake.frame(processes=0, problems=(f"no eBPF without root: calls are not shown; {command}",))
    lines = render_text(frame, width=60).splitlines()
    assert max(map(width_of, lines)) <= 60
    first = next(row for row, line in enumerate(lines) if line.startswith("▲"))
    assert lines[first + 1].startswith("  "), "below its first word"
    assert command in " ".join(line.strip() for line in lines)
    assert command in render_text(frame, width=None)


def test_an_empty_frame_speaks() -> None:
    text = render_text(fake.frame(processes=0, gpus=0, driver=""), width=None)
    assert "No GPU is shown" in text
    assert "Waiting for a process" in text


def test_ascii_only() -> None:
    assert render_text(fake.frame(), width=None, ascii_only=True).isascii()
