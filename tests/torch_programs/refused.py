"""Asks for what the simulated GPU does not have."""

import sys

import torch

WANTED = {
    "fft": lambda x: torch.fft.rfft(x),
    "solve": lambda x: torch.linalg.solve(x, x),
    "compile": lambda x: torch.compile(lambda y: (y * 2).relu())(x),
}
WANTED[sys.argv[1]](torch.randn(8, 8, device="cuda"))
