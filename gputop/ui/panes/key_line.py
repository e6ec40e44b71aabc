"""The last line: the keys that work where the cursor is, as many as fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from textual import events
from textual.binding import Binding

from gputop.format import width_of
from gputop.ui.model.look import Line, Span, line_width, spread
from gputop.ui.panes.pane import Plain

# by importance; other keys come last, and the last ones are left out without room
_ORDER = ("⏎", "w", "/", "space", "[ ]", "R", "s", "{ }", ", .", "J", "r", "y")
_LAST = ("?", "q")  # never left out
_PALETTE = "command_palette"


class Keys(Plain):
    """The keys by importance, the palette at the right end; clicking presses a key.

    In place of Textual's footer, which makes a widget of each key whenever the focus changes, and keeps all.
    """

    ALLOW_SELECT = False
    _known: Sequence[tuple[Binding, str]] = ()  # bindings with their keys' display names
    _drawn: tuple[tuple[int, Binding], ...] = ()  # bindings with the column of their end
    _pointed: Binding | None = None
    _made: tuple[object, Line] = None, ()

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bound)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _bound(self, _screen: Any) -> None:
        self._known = ()
        self.call_after_refresh(self.show)

    def _keys(self) -> Sequence[tuple[Binding, str]]:
        if not self._known:
            active = [one.binding for one in self.screen.active_bindings.values()]
            first = {one.action: one for one in reversed(active) if one.show or one.action == _PALETTE}
            shown = [one for one in active if first.get(one.action) is one]
            back = not isinstance(self.app.screen_stack[0], type(self.screen))
            self._known = [(_named(one, back=back), self.app.get_key_display(one)) for one in shown]
        return self._known

    def lines(self, width: int, height: int) -> Sequence[Line]:
        """Return the keys that fit, drawn again only when they change."""
        wanted = width, self._keys(), self._pointed
        if self._made[0] != wanted:
            self._made = wanted, self._line(width)
        return [self._made[1]]

    def _line(self, width: int) -> Line:
        fixed = [one for one in self._keys() if one[1] in _LAST]
        palette = [one for one in self._keys() if one[0].action == _PALETTE]
        others = sorted((one for one in self._keys() if one not in (*fixed, *palette)), key=_rank)
        room = width - sum(map(_width, fixed)) - sum(_width(one) + 1 for one in palette)
        kept = []
        for one in others:
            room -= _width(one)
            if room < 0:
                break
            kept.append(one)
        left, self._drawn = list[Span](), ()
        for one in (*kept, *fixed):
            left += [*([(" ", "dim")] if left else []), *self._spans(one)]
            self._drawn = (*self._drawn, (line_width(left), one[0]))
        right: list[Span] = []
        for one in palette:
            right = [*([] if self.view.glyphs.ascii else [("▏", "rule")]), *self._spans(one), (" ", "dim")]
            self._drawn = (*self._drawn, (width - 1, one[0]))
        return spread(left, right, width, fill=(" ", "dim"))

    def _spans(self, key: tuple[Binding, str]) -> list[Span]:
        chosen = "+select" if key[0] is self._pointed else ""
        return [(key[1], f"cursor{chosen}"), (f" {key[0].description}", f"dim{chosen}")]

    def _at(self, x: int) -> Binding | None:
        return next((binding for end, binding in self._drawn if x < end), None)

    def clicked(self, x: int, y: int) -> None:
        binding = self._at(x)
        if binding is not None:
            self.app.simulate_key(binding.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._point(self._at(event.x))

    def on_leave(self) -> None:
        self._point(None)

    def _point(self, binding: Binding | None) -> None:
        if binding is not self._pointed:
            self._pointed = binding
            self.tooltip = (binding.tooltip or binding.description) if binding else None
            self.show()


def _named(binding: Binding, *, back: bool) -> Binding:
    """Return the binding, with the description "Back" for q on pages."""
    return replace(binding, description="Back") if back and binding.action == "close" else binding


def _rank(key: tuple[Binding, str]) -> int:
    return _ORDER.index(key[1]) if key[1] in _ORDER else len(_ORDER)


def _width(key: tuple[Binding, str]) -> int:
    return width_of(key[1]) + width_of(key[0].description) + 2
