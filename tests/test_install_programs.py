"""What tests and scripts call is what ``scripts/setup.sh`` installs: a fresh machine lacks nothing."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gputop.commands.overview import TABLE
from tests.conftest import skip_or_fail

ROOT = Path(__file__).resolve().parent.parent
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
CALLS = {
    "run",
    "Popen",
    "check_call",
    "check_output",
    "Child",
}  # what starts a program, by its first argument
WORD = re.compile(r"[a-z][a-z0-9+_.-]*")
OPTIONAL = {
    "py-spy",
    "sudo",
    "gputop",
    "perf",
}  # what is there is used; nothing is skipped for want of it
OWN = frozenset(TABLE)  # words that tests give to gputop itself
SHELL = frozenset(
    re.findall(
        r"\w+",
        "alias bg break case cd command continue do done echo elif else esac eval exec exit export false fi "
        "compgen for function if in jobs local mapfile printf read readonly return set shift source test "
        "then trap true type umask unset until wait while",
    )
)


def first_word(node: ast.expr) -> str:
    """The first word of a list or tuple of words; "" where it is no constant that may name a program."""
    if isinstance(node, ast.List | ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
        word = node.elts[0].value
        if isinstance(word, str) and WORD.fullmatch(word):
            return word
    return ""


def has_options(node: ast.expr) -> bool:
    """Whether words follow that begin with a dash, as those of a command do."""
    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return any(isinstance(text, str) and re.match(r"--?[a-zA-Z]", text) for text in texts)


def in_python(text: str) -> tuple[set[str], set[str]]:
    """(programs that are called or looked for, first words of what looks like a command)."""
    called: set[str] = set()
    likely: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            if name == "which" and isinstance(first, ast.Constant) and isinstance(first.value, str):
                called.add(first.value)
            elif name in CALLS:
                called.add(first_word(first))
        elif isinstance(node, ast.List | ast.Tuple) and has_options(node):
            likely.add(first_word(node))
    return called - {""}, likely - {""}


def in_shell(text: str) -> set[str]:
    """The commands of a shell script: words where one may begin, without the shell's own and functions."""
    for gone in (
        r"(?s)<<-?'?END'?\n.*?\n\s*END\n",  # here-documents: text for others
        r"(?m)(?:^|(?<=\s))#.*$",
        r"'[^']*'",
        r"(?m)^\s*[\w*=-]+(?: \| [\w*=-]+)*\)",  # patterns of case
        r"\w+\+?=\([^)]*\)",  # lists of words
        r"\$\(\([^)]*\)*",  # sums
        r"(?:fail|say|printf)(?: \\?\s*\"[^\"]*\")+",  # what is reported
    ):
        text = re.sub(gone, " ", text)
    functions = set(re.findall(r"(?m)^(\w+)\(\)", text))
    start = r"(?:^\t*|[|;&] |\$\(|\(|\b(?:then|do|else|if|elif|while|check|command -v) |! )"
    start += r"(?:\w+=\S* )*(?:exec )?"
    found = set(re.findall(rf"(?m){start}([a-z][a-z0-9_+.-]*)(?=[\s;)]|$)", text))
    return found - SHELL - functions


def packages_of_setup() -> set[str]:
    """The Debian packages that ``scripts/setup.sh dev`` installs."""
    text = (ROOT / "scripts/setup.sh").read_text()
    lists = re.findall(r"packages\+?=\(([^)]*)\)", text)
    assert len(lists) == 2, "one list for what gputop needs, one for what its tests need"
    return set(" ".join(lists).split())


def needs_of(text: str) -> set[str]:
    """Packages that a script asks for by itself, at its beginning."""
    found = re.search(r"^# .*Needs: apt-get install ([^\n]+)", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def query(*arguments: str) -> str:
    """What dpkg-query says; "" where it fails."""
    if shutil.which("dpkg-query") is None:
        skip_or_fail("this is no Debian: which package holds a program is not known")
    return subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=False).stdout


@cache
def installed() -> dict[str, tuple[bool, tuple[str, ...]]]:
    """Package -> (whether every Debian has it, what it depends on), also by what it stands for."""
    fields = "${Package}|${Essential}|${Priority}|${Provides}|${Pre-Depends}, ${Depends}\\n"
    known: dict[str, tuple[bool, tuple[str, ...]]] = {}
    for line in query("-W", "-f", fields).splitlines():
        name, essential, priority, provides, needs = line.split("|", 4)
        base = essential == "yes" or priority == "required"
        depends = tuple(re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[ ,|:(]|$)", re.sub(r"\([^)]*\)", "", needs)))
        for own in (
            name,
            *re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[ ,(]|$)", re.sub(r"\([^)]*\)", "", provides)),
        ):
            known.setdefault(own, (base, depends))
        known[name] = (base, depends)
    return known


def brought_by(packages: set[str]) -> set[str]:
    """These packages, what they depend on, and what every Debian has."""
    known = installed()
    wanted = set(packages) | {name for name, (base, _) in known.items() if base}
    while True:
        more = {need for name in wanted if name in known for need in known[name][1]} - wanted
        if not more:
            return wanted
        wanted |= more


@cache
def owners() -> dict[str, str]:
    """Program, with its folder -> the package that holds it."""
    told = query("-S", *(f"{folder}/*" for folder in ("/bin", "/sbin", "/usr/bin", "/usr/sbin")))
    pairs = (line.partition(": ") for line in told.splitlines() if not line.startswith("diversion"))
    return {path: packages.partition(":")[0] for packages, _, path in pairs}


@cache
def package_of(program: str) -> str:
    """The package that holds a program of this machine; "" where it is not installed."""
    found = shutil.which(program, path=PATH)
    names = [
        name
        for path in ((found, os.path.realpath(found)) if found else ())
        for name in (path, path.removeprefix("/usr"), f"/usr{path}")
    ]
    for name in names:
        if name in owners():
            return owners()[name]
        if not name.startswith(("/bin", "/sbin", "/usr/bin", "/usr/sbin")):
            told = [line for line in query("-S", name).splitlines() if not line.startswith("diversion")]
            if told:
                return told[0].partition(":")[0]
    return ""


@cache
def calls() -> list[tuple[Path, str, set[str]]]:
    """(file, program that it calls, packages that it asks for by itself)."""
    return list(looked_for())


def looked_for() -> Iterator[tuple[Path, str, set[str]]]:
    """The same, one after the other."""
    shell = [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci/run"]
    for path in shell:
        text = path.read_text()
        for program in sorted(in_shell(text)):
            yield path, program, needs_of(text)
    folders = ("tests", "scripts", "gputop", "probes", "replay")
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        called, likely = in_python(path.read_text())
        for program in sorted(called | {word for word in likely if package_of(word)}):
            yield path, program, set()


@pytest.mark.slow
@pytest.mark.long
def test_every_program_that_is_called_comes_with_a_package_that_setup_installs() -> None:
    packages = packages_of_setup()
    missing: dict[str, set[str]] = {}
    for path, program, own in calls():
        if program in OPTIONAL | OWN or (ROOT / ".venv/bin" / program).exists():
            continue
        package = package_of(program)
        if package not in brought_by(packages | own) and not (own and not package):
            missing.setdefault(f"{program} ({package or 'not installed'})", set()).add(path.name)
    assert missing == {}, "not installed by scripts/setup.sh dev"


@pytest.mark.slow
@pytest.mark.long
def test_what_is_called_is_seen() -> None:
    """The reader of shell and Python finds what is there, so that the test above is about something."""
    assert {"apt-get", "dpkg-query", "sha256sum", "grep"} <= in_shell((ROOT / "scripts/setup.sh").read_text())
    assert {"timeout", "id"} <= in_shell((ROOT / "scripts/test.sh").read_text())
    assert {"find", "wc", "shellcheck"} & in_shell((ROOT / "scripts/lint.sh").read_text())
    called, _ = in_python("import subprocess\nsubprocess.run(['bpftool', 'prog'])\nshutil.which('nm')")
    assert called == {"bpftool", "nm"}
    _, likely = in_python("within = ('unshare', '--pid')\ncases = ['multi', 'perf']")
    assert likely == {"unshare"}
    programs = {program for _, program, _ in calls()}
    assert {"bpftool", "tmux", "setcap", "readelf", "addr2line", "strip", "cc", "c++", "setpriv"} <= programs
