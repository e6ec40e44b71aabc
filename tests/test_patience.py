"""Expressions that are typed as a filter: one that takes too long does not stop the screen."""

from __future__ import annotations

import threading
import time
import warnings
from dataclasses import replace

import pytest

from gputop.ui.model.listing.filter import SLOW, TooLongError, parse_filter, within
from tests import fake_frames as fake
from tests.screen_support import Shown


def test_an_expression_that_takes_too_long_is_let_go_and_reported() -> None:
    row = replace(fake.process(0), command="a" * 2000 + "!")
    typed = parse_filter("!(a+)+$")
    assert not typed.slow
    began = time.process_time()
    assert not typed.passes(row, ())
    assert typed.slow
    for _ in range(100):
        typed.passes(row, ())
    assert time.process_time() - began < 5, "it would take longer than the universe is old"


def test_what_python_warns_of_in_an_expression_is_not_written_over_the_screen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_filter("![[a]")


def test_the_screen_says_that_an_expression_takes_too_long() -> None:
    made = fake.frame(processes=2)
    rows = tuple(replace(row, command="a" * 2000 + "!") for row in made.processes)
    screen = Shown(replace(made, processes=rows), size=(160, 40))
    screen.view.listing.filter = parse_filter("!(a+)+$")
    screen.show(replace(made, processes=rows, number=1))
    assert "takes too long" in screen.text()
    assert "takes too long" in SLOW


def test_work_is_left_after_its_time_and_the_next_has_its_own() -> None:
    def endless() -> None:
        with within(0.01):
            while True:
                pass

    for _ in range(2):
        with pytest.raises(TooLongError):
            endless()
    with within(60):
        pass


def test_outside_of_the_main_thread_there_is_no_limit() -> None:
    done: list[bool] = []

    def work() -> None:
        with within(1e-6):
            done.append(sum(range(100_000)) > 0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
