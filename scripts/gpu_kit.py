"""Makes the kit for a machine with a real GPU: ``make gpu-kit``; there: ``gpu-kit/gpu-check``.

One folder of at most 60 MB. It holds all that gputop needs but a kernel, a driver and a Python with PyTorch:
this machine's Python and C library with a loader of their own, so that neither the other machine's glibc nor
its Python's version matters; bcc with LLVM; the packages; gputop; the simulated GPU.

Two of LLVM's libraries are large, and used by nothing here (Z3, libxml2 with ICU): in their place stand
libraries with the same symbols that end the program.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

from gputop.simgpu import ensure_built

ROOT = Path(__file__).resolve().parents[1]
KIT = ROOT / "gpu-kit"
PLACE = "/opt/gputop-kit"  # where it is unpacked: the loader's path is part of the program file
MOST_BYTES = 60_000_000
PACKAGES = ("textual", "msgpack", "shtab", "numpy", "nvidia-ml-py")
OURS = ("gputop", "replay", "probes", "tests/gpu_check")
PROGRAMS = "tests/gpu_check/programs"  # elsewhere: what lies among Python's packages is no line of a program
STUBBED = ("libz3.so.4", "libxml2.so.2")
# parts of the C library that are opened by name, or that the driver's libraries link: others would not fit
LIBC = (
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libutil.so.1",
)
LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|tests?|testing/tests|test_.*|idlelib|lib2to3|ensurepip|tkinter|turtledemo|pydoc_data|f2py"
    r"|config-3[^/]*|include|[^/]*\.(pyi|pxd|a|h|lib|exe)|_ssl\..*|_hashlib\..*|_tkinter\..*|_dbm\..*|_sqlite3\..*)$"
)


_PACKAGES = {"ldd": "libc-bin", "nm": "binutils", "readelf": "binutils"}  # of tools with another name


class KitError(Exception):
    """The kit could not be made; the message names the missing part."""


def _output(*command: str | Path) -> str:
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        package = _PACKAGES.get(str(command[0]), command[0])
        raise KitError(f"{command[0]} is not installed: apt-get install {package}") from error
    if done.returncode:
        raise KitError(f"{command[0]} failed: {done.stderr.strip()[-400:]}")
    return done.stdout


def _files(folder: Path, left_out: re.Pattern[str]) -> Iterator[Path]:
    """Files below a folder that the kit needs."""
    for path in sorted(folder.iterdir()):
        if left_out.search(path.relative_to(folder.parent).as_posix()):
            continue
        if path.is_dir():
            yield from _files(path, left_out)
        else:
            yield path


def _copy(source: Path, target: Path, left_out: re.Pattern[str] = LEFT_OUT) -> None:
    if source.is_dir():
        for path in _files(source, left_out):
            _copy(path, target / path.relative_to(source))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def needed(paths: Iterable[Path]) -> dict[str, Path]:
    """The libraries that these files load, by name, without stubbed ones and those that only these load."""
    found: dict[str, Path] = {}
    todo = list(paths)
    while todo:
        names = set(re.findall(r"\(NEEDED\).*\[(.+)\]", _output("readelf", "-dW", todo[-1])))
        where = dict(re.findall(r"(\S+) => (/\S+)", _output("ldd", todo.pop())))
        for name in names - found.keys():
            if name not in STUBBED and name in where:
                found[name] = Path(where[name])
                todo.append(found[name])
    return found


def write_stub(name: str, users: Iterable[Path], target: Path) -> None:
    """Compiles a library of that name with the symbols that its users want; calling one ends the program."""
    wanted: dict[str, str] = {}
    library = next((path for user in users for path in _loaded(user) if path.name == name), None)
    if library is None:
        raise KitError(f"nothing here loads {name}")
    has = {
        line.split()[-1].partition("@")[0]
        for line in _output("nm", "-D", "--defined-only", library).splitlines()
    }
    for user in users:
        for line in _output("nm", "-D", "--undefined-only", user).splitlines():
            symbol, _, node = line.split()[-1].partition("@")
            if symbol in has:
                wanted[symbol] = node.lstrip("@")
    with tempfile.TemporaryDirectory() as work:
        source, script = Path(work) / "stub.c", Path(work) / "stub.map"
        source.write_text(
            "#include <stdlib.h>\n"
            + "".join(f"void {symbol}(void) {{ abort(); }}\n" for symbol in sorted(wanted))
        )
        nodes = sorted({node for node in wanted.values() if node})
        script.write_text(
            "".join(
                f"{node} {{ global: {' '.join(s + ';' for s in wanted if wanted[s] == node)} }};\n"
                for node in nodes
            )
        )
        versions = [f"-Wl,--version-script={script}"] if nodes else []
        _output(
            "gcc", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{name}", *versions, "-o", target, source
        )


def _loaded(path: Path) -> list[Path]:
    return [Path(found) for found in re.findall(r" => (/\S+)", _output("ldd", path))]


def packages() -> dict[str, list[Path]]:
    """The files of the packages that gputop needs, and of their dependencies, by package."""
    found: dict[str, list[Path]] = {}
    todo = list(PACKAGES)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        one = distribution(name)
        found[name] = [
            Path(str(one.locate_file(file))) for file in one.files or () if not str(file).startswith("..")
        ]
        needs = [
            line for line in one.requires or () if "extra ==" not in line and "python_version <" not in line
        ]
        todo += [re.split(r"[^\w.-]", line)[0] for line in needs]
    return found


def _python(root: Path) -> None:
    """The interpreter, its standard library, and the loader that it names."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    _copy(Path(sys.executable).resolve(), root / "bin" / version)
    _copy(Path(sysconfig.get_path("stdlib")), root / "lib" / version)
    shutil.rmtree(root / "lib" / version / "site-packages", ignore_errors=True)
    for name in ("dist-packages", "sitecustomize.py"):
        path = root / "lib" / version / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (root / "bin" / "python3").symlink_to(version)


def _content(root: Path) -> None:
    """All that is unpacked on the other machine."""
    _python(root)
    site = root / "lib" / "python3" / "dist-packages"
    base = Path(sysconfig.get_path("purelib"))
    for files in packages().values():
        for path in files:
            inside = path.relative_to(base)
            if path.exists() and not any(LEFT_OUT.search(part) for part in _prefixes(inside)):
                _copy(path, site / inside)
    bcc = Path("/usr/lib/python3/dist-packages/bcc")
    if not bcc.exists():
        raise KitError("bcc is missing: apt-get install python3-bpfcc")
    _copy(bcc, site / "bcc")
    for name in OURS:
        _copy(ROOT / name, site / name, re.compile("__pycache__$"))
    shutil.move(site / PROGRAMS, root / "programs")
    simulated = ensure_built()
    _copy(simulated, root / "simgpu" / simulated.name)
    files = [path for path in root.rglob("*") if path.is_file() and "simgpu" not in path.parts]
    programs = [path for path in files if _is_elf(path)]
    opened = {name: system_library(name) for name in ("libbcc.so.0", *LIBC)}
    libraries = needed([*programs, *opened.values()]) | opened
    bundled = {path.name for path in programs}
    for name, path in libraries.items():
        if name not in bundled:  # a package may bring its own, found by its own path
            _copy(path.resolve(), root / "lib" / name)
    users = [path.resolve() for path in libraries.values()]
    for name in STUBBED:
        write_stub(name, users, root / "lib" / name)
    loader = Path(_output("patchelf", "--print-interpreter", Path(sys.executable).resolve()).strip())
    _copy(loader.resolve(), root / "lib" / loader.name)
    interpreter = root / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    _output("patchelf", "--set-interpreter", f"{PLACE}/lib/{loader.name}", interpreter)
    _output("patchelf", "--force-rpath", "--set-rpath", f"{PLACE}/lib", interpreter)


def system_library(name: str) -> Path:
    """This machine's library of that name."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    folders = (f"/usr/lib/{multiarch}", f"/lib/{multiarch}", "/usr/lib64", "/usr/lib")
    found = next((Path(folder) / name for folder in folders if (Path(folder) / name).exists()), None)
    if found is None:
        raise KitError(f"there is no {name}: scripts/setup.sh system")
    return found


def _prefixes(path: Path) -> list[str]:
    return ["/".join(path.parts[: row + 1]) for row in range(len(path.parts))]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's file that only root can change, without a name or a time of this machine."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = 0
    entry.mode = (entry.mode & 0o755) | 0o600
    return entry


def make(kit: Path = KIT) -> int:
    """Makes the folder anew; returns its size in bytes.

    Raises:
        KitError: Something that it is made of is missing, or it is too large.
    """
    shutil.rmtree(kit, ignore_errors=True)
    kit.mkdir()
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        root.mkdir(mode=0o755)
        _content(root)
        unpacked = Path(work) / "root.tar"
        with tarfile.open(unpacked, "w") as tar:
            tar.add(root, arcname=".", filter=_plain)
        # x86's filter and a dictionary as large as the content: the same text stands in many files
        lzma = "--lzma2=preset=6,dict=64MiB,lc=0,lp=0,pb=0"
        with (kit / "root.tar.xz").open("wb") as packed:
            done = subprocess.run(["xz", "--x86", lzma, "-T2", "-c", unpacked], stdout=packed, check=False)
        if done.returncode:
            raise KitError("xz failed: apt-get install xz-utils")
    digest = hashlib.sha256((kit / "root.tar.xz").read_bytes()).hexdigest()
    (kit / "root.sha256").write_text(f"{digest}  root.tar.xz\n")
    shutil.copy2(ROOT / "scripts" / "gpu_check.sh", kit / "gpu-check")
    size = sum(path.stat().st_size for path in kit.iterdir())
    if size > MOST_BYTES:
        raise KitError(
            f"the kit has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f}: see what was added"
        )
    return size


if __name__ == "__main__":
    try:
        print(f"{KIT.name}/: {make() / 1e6:.1f} MB; on the machine with a GPU: {KIT.name}/gpu-check")
    except KitError as error:
        sys.exit(f"gpu-kit: {error}")
