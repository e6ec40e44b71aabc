"""Host work of less than a few milliseconds before each step. Arguments: KIND before|after; see below."""

import gc
import json
import re
import sys

from clock import Clock
from plain import Gpu

KIND, WHICH = sys.argv[1:3]
BEFORE = WHICH == "before"
KEPT = []  # what a collection goes through
TOKENS = list(range(4_000))
RECORDS = [{"id": number, "name": f"user {number}", "tags": ["a", "b"]} for number in range(400)]
TEXT = json.dumps(RECORDS)
PATTERN = re.compile(r"(\w+) (\d+)")


def count_tokens() -> int:
    total = 0
    for token in TOKENS:
        total += token * 31 % 1024
    return total


def parse_records() -> int:
    return len(json.loads(TEXT)) + len(json.dumps(RECORDS))


def collect_garbage() -> int:
    return gc.collect()


def match_names() -> int:
    return len(PATTERN.findall(TEXT))


def format_lines() -> int:
    return sum(len(f"{token:08d} {token / 7:.3f}") for token in TOKENS[:800])


# what it does, kernels a step, how long each takes, whether it waits for them
KINDS = {
    "tokens": (count_tokens, 15, 20_000, True),
    "tokens_ahead": (count_tokens, 15, 8_000, False),
    "json": (parse_records, 20, 50_000, True),
    "garbage": (collect_garbage, 20, 50_000, True),
    "regex": (match_names, 10, 10_000, True),
    "lines": (format_lines, 10, 20_000, True),
}


def main() -> None:
    work, launches, ns, waits = KINDS[KIND]
    if KIND == "garbage":
        KEPT.extend({"id": number} for number in range(20_000))
    gpu = Gpu()
    clock = Clock()
    steps = 0
    while not clock.tick():
        if BEFORE:
            work()
        gpu.launch(launches, ns)
        steps += 1
        if waits or steps % 100 == 0:
            gpu.wait()
    clock.report()


main()
