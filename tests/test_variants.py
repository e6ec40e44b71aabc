"""Of variants that repeat each other ``make test`` runs those that are named, and no name is in vain."""

from __future__ import annotations

import pytest

from tests import variants

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")

CASES = """
import pytest

@pytest.mark.mainly("a", "c")
@pytest.mark.parametrize("letter", ["a", "b", "c"])
def test_letter(letter):
    pass
"""


@pytest.mark.slow
def test_the_others_are_long(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(CASES)
    variants.mark(items)
    kept = [item.name for item in items if item.get_closest_marker("long") is None]
    assert kept == ["test_letter[a]", "test_letter[c]"]


@pytest.mark.slow
def test_a_variant_that_is_requested_alone_is_no_mistake(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(CASES)
    variants.mark(items[1:2])
    assert items[1].get_closest_marker("long") is not None


@pytest.mark.slow
def test_a_name_that_no_variant_has_ends_the_run(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(CASES.replace('"a", "c"', '"a", "z"'))
    with pytest.raises(pytest.UsageError, match=r"mainly names \['z'\], its variants are \['a', 'b', 'c'\]"):
        variants.mark(items)
