"""Names that stand in a recording for others in unusual ways: none passes ``redact`` or ``--private``."""

from __future__ import annotations

import time

import pytest

from gputop.files.redaction import Redactor
from probes.activities import activity_rows, activity_sample, unknown_rows
from probes.source import FRAMES, MARKER, NOTE, PROBLEM, PROCESS, Sample
from replay.private import Disguise

SECRET = "zoe"
TEXTS = [
    "cannot read file:///home/zoe/x.py",
    "read s3://zoe/data and gs://zoe/x",
    "http://zoe:zoe@zoe.example/a",
    "//home/zoe/x.py",
    "/data///zoe/x.py",
    "-I/home/zoe/include",
    "cc -I/home/zoe/include -L/home/zoe/lib",
    "/home/a,zoe/x.py",
    "/home/o'zoe/x.py",
    "/home/a:zoe/x.py",
    "/home/[zoe]/x.py",
    "/home/a(zoe)/x.py",
    "/usr/lib/../../home/zoe/x.py",
    "/opt/v/lib/python3.12/site-packages/../../../../zoe/x.py",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", [PROBLEM, NOTE, MARKER])
def test_a_folder_in_a_sentence_is_gone(kind: str, text: str) -> None:
    for clean in (Redactor().item, Disguise().sample):
        item = clean(Sample(kind, 1, {"text": text}))
        assert isinstance(item, Sample)
        assert SECRET not in str(item.data), item.data


@pytest.mark.parametrize("text", TEXTS)
def test_a_folder_in_a_name_of_a_range_is_gone(text: str) -> None:
    rows = unknown_rows(1)
    rows["what"], rows["name"], rows["detail"], rows["pid"] = 0, 1, 1, 10
    sample = activity_sample(rows, ["range", f"load {text}"], 1)
    watched = Sample(PROCESS, 1, {"pid": 10, "watched": True, "name": "train"})
    disguise, redactor = Disguise(), Redactor()
    for clean in (disguise.sample, redactor.item):
        clean(watched)
        item = clean(sample)
        assert isinstance(item, Sample)
        table, texts = activity_rows(item.data)
        assert texts[int(table["name"][0])].startswith("load ")
        assert SECRET not in str(texts), texts


@pytest.mark.parametrize("path", TEXTS[-2:])
def test_a_file_behind_a_librarys_folder_is_none_of_the_library(path: str) -> None:
    sample = Sample(FRAMES, 1, {"pid": [10], "stack": [1], "frames": [[(path, 3, "step")]]})
    for clean in (Redactor().item, Disguise().sample):
        item = clean(sample)
        assert isinstance(item, Sample)
        assert SECRET not in str(item.data), item.data


def test_why_cupti_reports_nothing_and_which_container_it_is_hold_no_name_in_a_private_recording() -> None:
    data = {
        "pid": 10,
        "watched": True,
        "container": "lxc zoe",
        "inside_refused": "/home/zoe/libcupti.so: none",
    }
    clean = Disguise().sample(Sample(PROCESS, 1, data)).data
    assert clean["container"] == "lxc"
    assert clean["inside_refused"] == "libcupti.so: none"


@pytest.mark.parametrize(
    ("variable", "clean"),
    [
        ("0,1", "0,1"),
        ("", ""),
        ("-1", "-1"),
        (" 2 , 0", " 2 , 0"),
        ("GPU-4f1c,MIG-GPU-aa-bb/1/0,MIG-12ab-cd", "GPU-4f1c,MIG-GPU-aa-bb/1/0,MIG-12ab-cd"),
        ("zoe", "?"),
        ("0,zoe's,1", "0,?,1"),
        ("1zoe,GPU-zoe", "?,?"),
    ],
)
def test_a_variable_of_cuda_holds_no_text_that_somebody_chose(variable: str, clean: str) -> None:
    data = {"pid": 10, "watched": True, "cuda_visible_devices": variable, "cuda_device_order": "zoe"}
    for made in (Disguise().sample, Redactor().item):
        item = made(Sample(PROCESS, 1, data))
        assert isinstance(item, Sample)
        assert (item.data["cuda_visible_devices"], item.data["cuda_device_order"]) == (clean, "?")


@pytest.mark.parametrize(
    "text", ["a," * 50_000, "/" * 100_000, "/a," * 40_000, "x-I/" * 40_000, "a://" * 30_000, " " * 100_000]
)
def test_texts_made_to_be_searched_for_long_are_not(text: str) -> None:
    begin = time.process_time()
    for clean in (Redactor().item, Disguise().sample):
        clean(Sample(NOTE, 1, {"text": text}))
        clean(Sample(PROCESS, 1, {"pid": 10, "watched": True, "cuda_visible_devices": text}))
    assert time.process_time() - begin < 5.0
