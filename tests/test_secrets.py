"""Command lines are shown without what looks like a secret, and otherwise as they are."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time

import pytest

from probes.proc import procfs
from probes.proc.secrets import masked


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("train --token abc123 --lr 1", "train --token *** --lr 1"),
        ("train --hf-token=abc123", "train --hf-token=***"),
        ("env HF_TOKEN=abc WANDB_API_KEY=def python t.py", "env HF_TOKEN=*** WANDB_API_KEY=*** python t.py"),
        ("psql -password hunter2 db", "psql -password *** db"),
        ("app --db-password hunter2", "app --db-password ***"),
        ("app --aws-secret-access-key x --verbose", "app --aws-secret-access-key *** --verbose"),
        ("app trainer.api_key=xyz", "app trainer.api_key=***"),
        ("curl -H Authorization:Bearer", "curl -H Authorization:Bearer"),
        ("app https://eve:hunter2@host/x", "app https://eve:***@host/x"),
        ("app https://:hunter2@host/x", "app https://:***@host/x"),
        ("app postgres://u:p@h:5432/db", "app postgres://u:***@h:5432/db"),
        (f"app ghp_{'a' * 36}", "app ***"),
        (f"app hf_{'Ab1' * 11}", "app ***"),
        (f"app --key=sk-{'a1' * 20}", "app --key=***"),
        ("app AKIAABCDEFGHIJKLMNOP", "app ***"),
        ("app eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "app ***"),
    ],
)
def test_what_looks_like_a_secret_is_masked(command: str, shown: str) -> None:
    assert shlex.join(masked(command.split())).replace("'", "") == shown


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --tokenizer gpt2 --max-tokens 512 --num-token-types 2",
        "python -m torch.distributed.run --nproc 2 --rdzv-endpoint host:29500 train.py",
        "vllm serve model --max-num-batched-tokens=8192 --pass-through",
        "rsync host:/a/b https://example.org/path",
        "app --password --verbose",
        "app --author eve --compass north --bypass",
        "python /home/eve/secrets/train.py token.py",
    ],
)
def test_what_does_not_stays_as_it_is(command: str) -> None:
    assert masked(command.split()) == command.split()


def test_the_command_of_a_process_is_told_without_its_secrets() -> None:
    code = "import time; time.sleep(60)"
    program = subprocess.Popen([sys.executable, "-c", code, "--token", "abc 123", "--seed", "1"])
    try:
        deadline = time.monotonic() + 60
        # the kernel tells of a new program before it knows where its arguments are
        while not (facts := procfs.process_facts(program.pid) or {}).get("command"):
            assert time.monotonic() < deadline
    finally:
        program.kill()
        program.wait()
    assert facts["command"].endswith("--token *** --seed 1")
