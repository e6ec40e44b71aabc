"""The last line: the keys that work where the cursor is, as many as fit."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

# in this order; what is not named here comes last; from the end on they are left out where there is no room
_ORDER = ("⏎", "w", "/", "space", "[ ]", "R", "s", "{ }", ", .", "J", "r", "y")
_LAST = ("?", "q")  # these are never left out


class Keys(Footer):
    """Textual's footer, without the keys that there is no room for."""

    def __init__(self) -> None:
        """Compact: every column counts."""
        super().__init__(compact=True)

    def compose(self) -> ComposeResult:
        """The keys, what matters most first; the palette at the right end."""
        every = [key for key in super().compose() if isinstance(key, FooterKey)]
        fixed = [key for key in every if key.key_display in _LAST or key.has_class("-command-palette")]
        room = self.app.size.width - sum(_width(key) for key in fixed)
        for key in sorted((key for key in every if key not in fixed), key=_rank):
            room -= _width(key)
            if room < 0:
                break
            yield key
        yield from fixed

    def on_resize(self, event: events.Resize) -> None:
        """Other keys fit."""
        self.refresh(recompose=True)


def _rank(key: FooterKey) -> int:
    return _ORDER.index(key.key_display) if key.key_display in _ORDER else len(_ORDER)


def _width(key: FooterKey) -> int:
    return len(key.key_display) + len(key.description) + 2 + key.has_class("-command-palette")
