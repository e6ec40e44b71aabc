"""A model behind a front process that tokenizes in Python. Argument: before|after (it has the tokens)."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

AFTER = sys.argv[1] == "after"
WORDS, LENGTH = 4000, 512


def tokenize(text: str) -> list[int]:
    tokens: list[int] = []
    for word in text.split():
        value = 0
        for letter in word:  # <- server
            value = (value * 31 + ord(letter)) % 50_000  # <- server
        tokens.append(value)  # <- server
    return tokens[:LENGTH]


def front(pipe: Connection) -> None:
    text = " ".join(f"word{number % 977}" for number in range(WORDS))
    ready = tokenize(text)
    while pipe.recv():
        pipe.send(ready if AFTER else tokenize(text))


def main() -> None:
    forked = multiprocessing.get_context("fork")
    pipe, theirs = forked.Pipe()
    forked.Process(target=front, args=(theirs,), daemon=True, name="front").start()
    import torch
    from measured import serve
    from torch import nn

    def make() -> Callable[[], object]:
        embed = nn.Embedding(50_000, 512).cuda()
        layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(12))).cuda()

        def step() -> None:
            pipe.send(1)
            tokens = pipe.recv()
            with torch.no_grad():
                layers(embed(torch.tensor(tokens, device="cuda"))).argmax(1).cpu()

        return step

    serve(make)


main()
