"""Steps of several alike parts: one kernel and one wait, twice a step, repeat twice as often as steps.

Parts whose calls are at different lines, in turns, are one step: a loop passes all of its lines. Parts on
different GPUs are one step where a pause separates each round. Where only times differ the parts stay
steps, and it is reported how many of them the program's own step may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gputop.analysis.evidence.api_classes import Role
from gputop.analysis.evidence.columns import Floats, Ints, Mask
from gputop.analysis.evidence.evidence import Evidence
from gputop.analysis.evidence.repetition import FEWEST, EnqueuedWork, WorkSequence

_MOST = 16  # parts of a step
_SHORT, _POOR = 16, 3  # operations of a part: longer ones differ by what they do; so few may be anything
_LOOKED_AT = 2048  # parts, to see whether they take turns
_AGREE = 0.9  # of them
_ROUNDS = 8  # in which the longest part must be at the same place
_LONGER = 2.0  # times the other parts of a round, or their pauses
_MIXER = np.uint64(0x9E3779B97F4A7C15)

Parts = tuple[Ints, Ints, Mask]  # head, tail, whole


def joined(evidence: Evidence, known: WorkSequence, parts: Parts, threads: Ints) -> tuple[Parts, int]:
    """Return (the parts, those of one step joined; how many of them the program's own step may be)."""
    head, tail, whole = parts
    operations = float(np.median(tail - head))
    if len(head) < FEWEST * 2 or operations > _SHORT:
        return parts, 1
    middle = max((len(head) - _LOOKED_AT) // 2, 0)
    sample = slice(middle, middle + _LOOKED_AT)
    pause = (known.begin[head] - known.since[head]).astype(np.float64)
    length = np.append(known.since, known.end[-1:])[tail] - known.since[head]
    seen = _Seen(evidence, known, head[sample], threads)
    if seen.turns is None:
        sends = np.isin(known.work[known.symbol[head[0] : tail[0]]], EnqueuedWork.SEND).any()
        unclear = not seen.more_now_and_then and operations <= _POOR and not sends
        times = (length[sample].astype(np.float64), pause[sample])
        return parts, max(map(_period, times)) if unclear else 1
    every = len(seen.turns)
    if seen.gpus_only and _period(pause[sample]) != every:
        return parts, 1
    signature = _Seen(evidence, known, head, threads).signature
    begins = _places(signature, _from_pause(seen.turns, signature[sample], pause[sample], signature))
    if every * len(begins) < _AGREE * len(head):
        return parts, every
    adjacent = np.append(tail[:-1] == head[1:], True)
    inside = begins[:, None] + np.arange(every)
    complete = whole[inside].all(axis=1) & adjacent[inside[:, :-1]].all(axis=1)
    return (head[begins], tail[begins + every - 1], complete), 1


@dataclass
class _Seen:
    """The places of the parts' calls."""

    evidence: Evidence
    known: WorkSequence
    head: Ints
    threads: Ints

    @cached_property
    def _calls(self) -> tuple[Ints, Ints, Ints]:
        """(part, line and function, GPU that is chosen) of each call."""
        calls, begin = self.evidence.calls, self.known.since[self.head]
        rows = []
        for thread in self.threads.tolist():
            low, high = np.searchsorted(calls["row"], [thread, thread + 1])
            first, end = np.searchsorted(
                calls["begin"][low:high], [begin[0], self.known.begin[self.head[-1]]]
            )
            rows.append(np.arange(low + first, low + end))
        row = np.concatenate(rows)
        part = np.searchsorted(begin, calls["begin"][row], side="right") - 1
        place = (calls["stack"][row].astype(np.uint64) + calls["op"][row].astype(np.uint64)) * _MIXER
        chooses = self.evidence.role(calls).take(row) == Role.SET_DEVICE
        gpu = np.where(chooses, calls["aux"][row].astype(np.int64) + 1, 0)
        return part, np.unique(place, return_inverse=True)[1].reshape(-1), gpu

    def _numbered(self, key: Ints) -> tuple[Ints, Ints, Ints]:
        """(a number for the set of keys of each part, part and key of each member)."""
        part, kinds = self._calls[0], int(key.max(initial=0)) + 1
        pairs = np.unique(part * kinds + key)
        member, one = pairs // kinds, pairs % kinds
        mixed = (one.astype(np.uint64) + np.uint64(1)) * _MIXER
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIXER
        total = np.append(np.uint64(0), np.cumsum(mixed, dtype=np.uint64))
        bounds = np.searchsorted(member, np.arange(len(self.head) + 1))
        return (total[bounds[1:]] - total[bounds[:-1]]).astype(np.int64), member, one

    @cached_property
    def _sets(self) -> tuple[Ints, Ints, Ints]:
        _part, place, gpu = self._calls
        return self._numbered(place * (int(gpu.max(initial=0)) + 1) + gpu)

    @property
    def signature(self) -> Ints:
        """A number of each part for what it calls where; the last part may be cut."""
        return self._sets[0]

    @cached_property
    def _word(self) -> Ints:
        signature = self.signature[:-1]
        every = next((one for one in range(1, _MOST + 1) if _repeats(signature, one)), 1)
        if every == 1 or len(signature) < FEWEST * every:
            return signature[:0]
        return np.array([_most_frequent(signature[place::every]) for place in range(every)], np.int64)

    @cached_property
    def more_now_and_then(self) -> bool:
        """True if some parts only do more than others: a loss is logged each tenth time."""
        signature, member, one = self._sets
        examples = [int(np.argmax(signature == value)) for value in np.unique(self._word).tolist()]
        sets = [frozenset(one[member == example].tolist()) for example in examples]
        return any(mine < other for mine in sets for other in sets)

    @property
    def turns(self) -> Ints | None:
        """The signatures that parts have in turns; None where all are alike, or some only do more."""
        return self._word if len(self._word) and not self.more_now_and_then else None

    @property
    def gpus_only(self) -> bool:
        """True if only the GPUs that parts choose differ."""
        return _repeats(self._numbered(self._calls[1])[0][:-1], 1)


def _repeats(signature: Ints, every: int) -> bool:
    return len(signature) > every and bool((signature[every:] == signature[:-every]).mean() >= _AGREE)


def _most_frequent(values: Ints) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])


def _period(times: Floats) -> int:
    """Return after how many parts one comes that takes much longer than those between; 1 without any."""
    for every in range(2, _MOST + 1):
        rounds = times[: len(times) // every * every].reshape(-1, every)
        if len(rounds) < _ROUNDS:
            break
        typical = np.median(rounds, axis=0)
        longest = int(np.argmax(typical))
        if typical[longest] < _LONGER * max(float(np.delete(typical, longest).max()), 1.0):
            continue
        if (np.argmax(rounds, axis=1) == longest).mean() >= _AGREE:
            return every
    return 1


def _from_pause(word: Ints, signature: Ints, pause: Floats, whole: Ints) -> Ints:
    """The turns from the part behind the longest pause on; without such a pause from the first part on."""
    every = len(word)
    pauses = np.array([np.median(pause[signature == value]) for value in word.tolist()])
    first = int(np.argmax(pauses))
    if pauses[first] < _LONGER * max(float(np.delete(pauses, first).max()), 1.0):
        turned = [np.roll(word, -place) for place in range(every)]
        first = next((place for place in range(every) if (whole[:every] == turned[place]).all()), first)
    return np.roll(word, -first)


def _places(signature: Ints, word: Ints) -> Ints:
    """Begins of the word, none within another one; the first and the last part may be cut."""
    signature, every = signature.copy(), len(word)
    signature[0] = word[0] if (signature[1:every] == word[1:]).all() else signature[0]
    signature[-1] = word[-1] if (signature[-every:-1] == word[:-1]).all() else signature[-1]
    windows = np.lib.stride_tricks.sliding_window_view(signature, every)
    chosen, free = [], 0
    for place in np.flatnonzero((windows == word).all(axis=1)).tolist():
        if place >= free:
            chosen.append(place)
            free = place + every
    return np.array(chosen, np.int64)
