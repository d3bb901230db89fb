"""Kernels with one line changed, whose number is known: how near to it do the findings point?"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ahbm.errors import Finding
from ahbm.runs.verdict import check_kernel

from .kernels import ALGORITHMS

NEAR = 4
"""Lines that are near enough to see the other one."""
NAMES = (
    "ring_allreduce", "recursive_doubling_allreduce", "tree_allreduce", "ring_all_gather", "ring_reduce_scatter",
    "pairwise_all_to_all", "binomial_reduce", "binomial_broadcast", "binomial_gather", "binomial_scatter",
    "dissemination_barrier", "ring_broadcast", "pat_all_gather",
)  # fmt: skip
CHANGES = (
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" % \w+", ""), (r" // ", " * "), (r" == ", " != "),
    (r" < ", " <= "), (r"\b1\b", "2"), (r"\b0\b", "1"), (r"range\(", "range(1 + "),
    (r"^( +)tl\.(?:send|store)\(.*\)$", r"\1pass"), (r"combine\((\w+), .*\)$", r"zeros_like(\1)"),
)  # fmt: skip

HELPERS = '''COLLECTIVE = "all_gather"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def send_to(tl, rank, value):
    tl.send(dir=tl.peer(sip=rank), src=value)


def recv_from(tl, rank, n, dtype):
    return tl.recv(dir=tl.peer(sip=rank), shape=(n,), dtype=dtype)


def kernel(t_ptr, n, w, dtype, me, kind, tw, th, *, tl):
    size = n * tl.itemsize(dtype)
    mine = tl.load(t_ptr + me * size, shape=(n,), dtype=dtype)
    for k in range(1, w):
        send_to(tl, (me + k) % w, mine)
    for k in range(1, w):
        got = recv_from(tl, (me - k) % w, n, dtype)
        tl.store(t_ptr + (me - k) % w * size, got)
'''
STAR = '''COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16", op="sum"):
    return (n_elem, world_size, dtype, op)


def kernel(t_ptr, n, w, dtype, op, me, kind, tw, th, *, tl):
    acc = tl.load(t_ptr, shape=(n,), dtype=dtype)
    if me == 0:
        for r in range(1, w):
            acc = tl.combine(acc, tl.recv(dir=tl.peer(sip=r), shape=(n,), dtype=dtype), op)
        if op == "avg":
            acc = acc / w
        for r in range(1, w):
            tl.send(dir=tl.peer(sip=r), src=acc)
    else:
        tl.send(dir=tl.peer(sip=0), src=acc)
        acc = tl.recv(dir=tl.peer(sip=0), shape=(n,), dtype=dtype)
    tl.store(t_ptr, acc)
'''


@dataclass(frozen=True)
class Blame:
    """A changed line, and the lines that the first finding names."""

    name: str
    line: int
    text: str
    """The line as it is now."""
    code: str
    lines: tuple[int, ...]

    @property
    def distance(self) -> int | None:
        """To the nearest line that is named; None where none is."""
        return min((abs(line - self.line) for line in self.lines), default=None)


def named(finding: Finding) -> tuple[int, ...]:
    """The lines of the kernel that a finding names, in order."""
    return tuple(
        int(line) for site in finding.sites for line in re.findall(r"changed\.py:(\d+)", site.origin or "")
    )


def blames(each: int, seed: int, folder: Path) -> Iterator[Blame]:
    """What the check says of up to `each` changes of every kernel that it reports, the same for the same seed."""
    sources = {name: (ALGORITHMS / f"{name}.py").read_text(encoding="utf-8") for name in NAMES}
    path = folder / "changed.py"
    for name, source in (sources | {"helpers": HELPERS, "star": STAR}).items():
        rng = random.Random(f"{seed}/{name}")
        changes = list(_changes(source))
        for number, changed in rng.sample(changes, min(each, len(changes))):
            lines = source.split("\n")
            lines[number - 1] = changed
            path.write_text("\n".join(lines), encoding="utf-8")
            ranks = 8 if name.startswith("recursive") else 5
            found = check_kernel(str(path), None, "npu_ring_8", ranks=[ranks], sizes=[320], dtype="i32")
            if found.verdict in ("wrong", "deadlock", "malformed", "race"):
                first = found.findings[0]
                yield Blame(name, number, changed.strip(), first.code, named(first))


def _changes(source: str) -> Iterator[tuple[int, str]]:
    """Line and its changed text, of the functions behind `kernel_args`."""
    lines = source.split("\n")
    begins = next(number for number, line in enumerate(lines) if line.startswith("def kernel_args"))
    body = next(number for number, line in enumerate(lines) if number > begins and line.startswith(("def ", "    def ")))
    for number, line in enumerate(lines[body + 1 :], body + 2):
        if not line.strip() or line.lstrip().startswith(("#", "def ", '"', "return tl.num")):
            continue
        for pattern, other in CHANGES:
            changed = re.sub(pattern, other, line, count=1)
            if changed != line and _compiles([*lines[: number - 1], changed, *lines[number:]]):
                yield number, changed


def _compiles(lines: list[str]) -> bool:
    try:
        compile("\n".join(lines), "changed.py", "exec")
    except SyntaxError:
        return False
    return True


def table(found: Sequence[Blame]) -> str:
    """How far the nearest named line is from the changed one, by code, in Markdown."""
    codes = sorted({blame.code for blame in found})
    lines = ["| code | the line | within 4 | other lines | none |", "|---|---|---|---|---|"]
    for code in (*codes, ""):
        far = Counter(_sort(blame.distance) for blame in found if code in ("", blame.code))
        cells = " | ".join(str(far[sort]) for sort in ("the line", "within 4", "other lines", "none"))
        lines.append(f"| {code or 'all'} | {cells} |")
    return "\n".join(lines)


def _sort(distance: int | None) -> str:
    if distance is None:
        return "none"
    return "the line" if distance == 0 else "within 4" if distance <= NEAR else "other lines"
