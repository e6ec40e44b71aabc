"""Generates C and assembly from the symbol lists.

Each exported function is a piece of assembly that pushes the frame pointer first, as in the real libraries (a
probe's cost depends on that instruction), counts itself in the log, and jumps to the simulation's function of
that name, so a probe on it sees the caller's registers and stack. Functions that are not simulated return
"not supported".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

NOT_SUPPORTED = 801
NVML_NOT_SUPPORTED = 3
NCCL_INVALID_USAGE = 5
#: Digits of a number in the log: two aligned words of eight, each stored at once.
NUMBER_WIDTH = 16
PAGE = 4096
#: The real ones jump, in the same stack frame, so that a probe on the target sees each launch once.
TAIL_JUMPS = {"__cudaLaunchKernel": "cudaLaunchKernel", "__cudaLaunchKernel_ptsz": "cudaLaunchKernel_ptsz"}
CUDA_TOTALS = (
    "gpu_busy_ns",
    "gpu_idle_ns",
    "kernel_busy_ns",
    "first_start_ns",
    "last_end_ns",
    "bytes_h2d",
    "bytes_d2h",
    "bytes_d2d",
    "staging_ns",
)

_DEFINED = re.compile(r"^SG(?:_TEXT|_OTHER)?\((?:[^,()]*, )?(\w+)\)", re.MULTILINE)
_ALIAS = re.compile(r"^SG_ALIAS\((\w+),\s*(\w+)\)", re.MULTILINE)
_DRIVER_CALL = re.compile(r"\bDRVS?\((\w+)\)")


@dataclass(slots=True)
class LogLayout:
    """A line of the log as a fixed text, and the offsets of its numbers."""

    text: bytearray = field(default_factory=bytearray)
    offsets: dict[str, int] = field(default_factory=dict)

    def number(self, label: str) -> None:
        """Append a number that starts on an 8-byte boundary."""
        self.text += f'"{label}":'.encode()
        self.text += b" " * (-len(self.text) % 8)
        self.offsets[label] = len(self.text)
        self.text += b"0".rjust(NUMBER_WIDTH) + b","

    def members(self, labels: list[str]) -> None:
        """Append several numbers, the last without a comma."""
        for label in labels:
            self.number(label)
        self.text.pop()


def log_layout(library: str, symbols: list[str], totals: tuple[str, ...]) -> LogLayout:
    """Return the line that a process writes at its first call."""
    layout = LogLayout()
    layout.text += b"{"
    layout.number("pid")
    layout.number("start")
    layout.text += f'"lib":"{library}","comm":'.encode()
    layout.offsets["comm"] = len(layout.text)
    layout.text += b'""'.ljust(18) + b","
    for total in totals:
        layout.number(total)
    layout.text += b'"calls":{'
    layout.members(symbols)
    layout.text += b"}}"
    # A whole number of pages, so that every line of the file can be mapped.
    layout.text += b" " * (-(len(layout.text) + 1) % PAGE) + b"\n"
    return layout


def layout_header(layout: LogLayout) -> str:
    """Return the layout as C macros."""
    names = ("pid", "start", "comm", *CUDA_TOTALS)
    lines = [f"#define LOG_SIZE {len(layout.text)}"]
    lines += [
        f"#define LOG_{name.upper()} {layout.offsets[name]}" for name in names if name in layout.offsets
    ]
    text = layout.text.decode()
    lines.append("#ifdef LOG_WITH_TEMPLATE")
    lines.append("static const char log_template[] =")
    for at in range(0, len(text), 100):
        piece = text[at : at + 100].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'  "{piece}"')
    lines.append(";")
    lines.append("#endif")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Definitions:
    """The functions that the C sources of a library define."""

    functions: frozenset[str]
    aliases: dict[str, str]
    driver_calls: frozenset[str]

    def target(self, symbol: str) -> str | None:
        """Return the simulated function behind an exported name, or None."""
        base = re.sub(r"_pt(sz|ds)$", "", symbol)
        base = self.aliases.get(base, base)
        return base if base in self.functions else None


def read_definitions(sources: list[Path]) -> Definitions:
    """Find the SG, SG_ALIAS, DRV and DRVS marks in the C sources."""
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    return Definitions(
        functions=frozenset(_DEFINED.findall(text)),
        aliases=dict(_ALIAS.findall(text)),
        driver_calls=frozenset(_DRIVER_CALL.findall(text)) - {"name"},
    )


_COUNT = """\
	mov sg_cell(%rip), %r10
	mov (%r10), %r10
	test %r10, %r10
	jz 3f
	mov {low}(%r10), %rax
2:	mov %rax, %r11
	shr $56, %r11
	cmp $0x39, %r11b
	je 3f
	movabs $0x100000000000000, %r11
	add %rax, %r11
	lock cmpxchg %r11, {low}(%r10)
	jne 2b
4:
"""
_SLOW = """\
3:	mov ${offset}, %r11d
	call sg_slow_count
	jmp 4b
"""
_SAVED = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")


def slow_path(function: str, c_function: str) -> str:
    """A call into C that keeps the argument registers of the interrupted entry."""
    pushes = "".join(f"\tpush %{name}\n" for name in _SAVED)
    pops = "".join(f"\tpop %{name}\n" for name in reversed(_SAVED))
    return (
        f"\t.text\n\t.hidden {function}\n{function}:\n{pushes}\tpush %r11\n"
        f"\tmov %rdi, %rsi\n\tmov %r11d, %edi\n\tcall {c_function}\n\tpop %r11\n{pops}\tret\n"
    )


def _entry(symbol: str, *, endbr: bool) -> str:
    head = f"\n\t.globl {symbol}\n\t.type {symbol},@function\n\t.p2align 4\n"
    head += f"{symbol}:\nentry_{symbol}:\n\t.cfi_startproc\n"
    if endbr:
        head += "\tendbr64\n"
    return head + (
        "\tpush %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 6, -16\n"
        "\tmov %rsp, %rbp\n\t.cfi_def_cfa_register 6\n"
    )


def _exit(symbol: str, last: str, *, slow: str = "") -> str:
    return (
        f"\tpop %rbp\n\t.cfi_remember_state\n\t.cfi_def_cfa 7, 8\n{last}\t.cfi_restore_state\n{slow}"
        f"\t.cfi_endproc\n\t.size {symbol}, .-{symbol}\n"
    )


def cuda_entry(
    symbol: str,
    offset: int,
    target: str | None,
    variant: bool | None,
    *,
    endbr: bool,
    refusal: int = NOT_SUPPORTED,
) -> str:
    """An exported function of the runtime, the driver or NCCL.

    Args:
        symbol: The exported name.
        offset: Offset of its counter in the log line.
        target: The simulated function, or None.
        variant: Whether the name is the per-thread variant of a pair; None without a pair.
        endbr: Whether to start with ``endbr64``.
        refusal: Return value of a function that is not simulated.
    """
    text = _entry(symbol, endbr=endbr) + _COUNT.format(low=offset + 8)
    if variant is not None and target is not None:
        text += f"\tmovq sg_ptds@gottpoff(%rip), %r11\n\tmovb ${int(variant)}, %fs:(%r11)\n"
    if symbol in TAIL_JUMPS:
        last = f"\tjmp entry_{TAIL_JUMPS[symbol]}\n"
    elif target is not None:
        last = f"\tjmp impl_{target}\n"
    else:
        text += f"\tmov ${refusal}, %eax\n"
        last = "\tret\n"
    return text + _exit(symbol, last, slow=_SLOW.format(offset=offset))


def nvml_entry(symbol: str, index: int, target: str | None, *, endbr: bool) -> str:
    """An exported function of NVML; a gate in C counts it and may inject a fault."""
    text = _entry(symbol, endbr=endbr) + f"\tmov ${index}, %r11d\n\tcall sg_slow_gate\n"
    text += "\ttest %eax, %eax\n\tjnz 5f\n"
    if target is None:
        text += f"\tmov ${NVML_NOT_SUPPORTED}, %eax\n5:\n"
        return text + _exit(symbol, "\tret\n")
    return text + _exit(symbol, f"\tjmp impl_{target}\n", slow="5:\tpop %rbp\n\tret\n")


def cuda_exports(symbols: list[str], layout: LogLayout, definitions: Definitions, *, endbr: bool) -> str:
    """The assembly file of the runtime or the driver."""
    known = set(symbols)
    parts = [slow_path("sg_slow_count", "sg_count_slow")]
    for symbol in symbols:
        per_thread = symbol.endswith(("_ptsz", "_ptds"))
        paired = per_thread or bool({symbol + "_ptsz", symbol + "_ptds"} & known)
        target = definitions.target(symbol)
        parts.append(
            cuda_entry(symbol, layout.offsets[symbol], target, per_thread if paired else None, endbr=endbr)
        )
    parts.append('\n\t.section .note.GNU-stack,"",@progbits\n')
    return "".join(parts)


def own_names(symbols: list[str]) -> list[str]:
    """NCCL's names without their pnccl aliases at the same address."""
    return [symbol for symbol in symbols if not symbol.startswith("p")]


def nccl_exports(symbols: list[str], layout: LogLayout, definitions: Definitions, *, endbr: bool) -> str:
    known = set(symbols)
    parts = [slow_path("sg_slow_count", "sg_count_slow")]
    for symbol in own_names(symbols):
        target = definitions.target(symbol)
        offset = layout.offsets[symbol]
        parts.append(cuda_entry(symbol, offset, target, None, endbr=endbr, refusal=NCCL_INVALID_USAGE))
        if f"p{symbol}" in known:
            twin = f"\t.weak {symbol}\n\t.globl p{symbol}\n\t.type p{symbol},@function\n"
            parts.append(f"{twin}\t.set p{symbol}, {symbol}\n")
    parts.append('\n\t.section .note.GNU-stack,"",@progbits\n')
    return "".join(parts)


def nvml_exports(symbols: list[str], definitions: Definitions, *, endbr: bool) -> str:
    """The assembly file of the NVML library."""
    parts = [slow_path("sg_slow_gate", "sg_gate")]
    parts += [nvml_entry(s, i, definitions.target(s), endbr=endbr) for i, s in enumerate(symbols)]
    parts.append('\n\t.section .note.GNU-stack,"",@progbits\n')
    return "".join(parts)


def version_map(node: str, symbols: list[str]) -> str:
    """A linker version script with every symbol in one node."""
    names = "".join(f"    {symbol};\n" for symbol in symbols)
    return f"{node} {{\n  global:\n{names}  local: *;\n}};\n"


def export_table(symbols: list[str], layout: LogLayout, definitions: Definitions) -> str:
    """A C table of the exports in alphabetical order, for cuGetProcAddress and NVML's faults."""
    lines = [f"extern void {s}(void);" for s in symbols]
    lines.append("const struct sg_export sg_exports[] = {")
    for s in symbols:
        simulated = int(definitions.target(s) is not None)
        lines.append(f'  {{"{s}", (void (*)(void)){s}, {layout.offsets[s]}, {simulated}}},')
    lines.append("};")
    lines.append(f"const unsigned sg_export_count = {len(symbols)};")
    return "\n".join(lines) + "\n"


def version_table(lines: list[str], symbols: list[str]) -> str:
    """A C table of the driver's names and the versions that introduced each of their forms.

    A line of the list is a name and its versions, from cudaTypedefs.h; the n-th belongs to the form with the
    n-th suffix. A form that the driver does not export ends the list of its name.
    """
    known, rows = set(symbols), []
    for line in sorted(lines):
        name, *versions = line.split()
        forms = [
            (version, symbols.index(name + suffix))
            for version, suffix in zip(versions, ("", "_v2", "_v3", "_v4"), strict=False)
            if name + suffix in known
        ]
        cells = ", ".join(f"{{{version}, {index}}}" for version, index in forms)
        rows.append(f'  {{"{name}", {len(forms)}, {{{cells}}}}},')
    table = "\n".join(["const struct sg_versions sg_versions[] = {", *rows, "};"])
    return f"{table}\nconst unsigned sg_version_count = {len(rows)};\n"


def text_constant(name: str, text: str) -> str:
    lines = text.replace("\\", "\\\\").replace('"', '\\"').splitlines()
    return (
        f"extern const char {name}[];\nconst char {name}[] =\n"
        + "".join(f'  "{x}\\n"\n' for x in lines)
        + ";\n"
    )


def driver_table(calls: frozenset[str], driver_symbols: list[str]) -> str:
    """The runtime's table of driver functions: plain and per-thread variant of each."""
    known = set(driver_symbols)
    names = sorted(calls)
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"not in the driver's symbol list: {', '.join(missing)}")
    lines = ["struct drv_table {"]
    lines += [f"  int (*{name}[2])();" for name in names]
    lines.append("};")
    lines.append("#ifdef DRV_NAMES")
    lines.append("static const char *const drv_names[][2] = {")
    for name in names:
        variant = next((name + s for s in ("_ptsz", "_ptds") if name + s in known), name)
        lines.append(f'  {{"{name}", "{variant}"}},')
    lines.append("};")
    lines.append("#endif")
    return "\n".join(lines) + "\n"
