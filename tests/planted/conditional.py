"""Kernels with a bug that shows at some sizes, numbers of ranks, ranks or networks only.

The algorithms that come with AHBM, one of whose `tl` calls does something else where a random condition holds. A bug
counts if the kernel is right where it is checked first, and wrong at a place that fulfils the condition.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ahbm.runs.verdict import Checked, check_kernel

from .kernels import ALGORITHMS, MUTANT, MUTANTS

SMALL = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "system.sips.count": 4}
NETWORKS = ("torus_2d", "mesh_2d_no_wrap")

GUARDED = """

import functools as _functools


def _guarded(right, wrong, arguments):
    @_functools.wraps(arguments)
    def kernel_args(world_size, n_elem, **keywords):
        return (world_size, n_elem, *arguments(world_size, n_elem, **keywords))

    def kernel(t_ptr, w, n, *rest, tl):
        rank, kind, tw, th = rest[-4:]
        (wrong if {condition} else right)(t_ptr, *rest, tl=tl)

    return kernel, kernel_args


kernel, kernel_args = _guarded(_right, kernel, kernel_args)
"""


@dataclass(frozen=True)
class Bug:
    """A kernel with a bug."""

    name: str
    sort: str
    """What the condition is about: `count`, `ranks`, `both`, `rank` or `network`."""
    condition: str
    text: str
    ranks: int
    """Where the condition holds, with `count` elements of a chunk."""
    count: int
    network: str | None = None

    def at_its_place(self, folder: Path) -> Checked:
        """The verdict where the condition holds."""
        network = {} if self.network is None else {"system.sips.topology": self.network, "system.sips.w": 2}
        grid = {} if self.network is None else {"system.sips.h": self.ranks // 2}
        overrides = {**SMALL, "system.sips.count": self.ranks, **network, **grid}
        chunks = 1 if "allreduce" in self.name or "broadcast" in self.name else self.ranks
        return check_kernel(self._written(folder), bytes_per_rank=self.count * chunks * 2, overrides=overrides)

    def checked(self, folder: Path, **pinned: int) -> Checked:
        """The verdict of the check by its defaults."""
        overrides = {key: value for key, value in SMALL.items() if key != "system.sips.count"}
        return check_kernel(self._written(folder), None, "npu_ring_8", overrides=overrides, **pinned)

    def first(self, folder: Path) -> Checked:
        """The verdict where the check by its defaults begins."""
        return self.checked(folder, ranks=[8], sizes=[4096])

    def _written(self, folder: Path) -> str:
        path = folder / "conditional.py"
        path.write_text(self.text, encoding="utf-8")
        return str(path)


def _conditions(rng: random.Random) -> list[tuple[str, str]]:
    divisor, few, many = rng.choice([2, 3, 4, 5, 6, 7, 8, 16]), rng.randint(2, 10), rng.randint(2100, 20_000)
    ranks, more = rng.choice([2, 3, 4, 5, 6, 7, 9, 10, 12, 16, 17, 24]), rng.randint(8, 24)
    return [
        ("count", f"n % {divisor} != 0"),
        ("count", f"n < {few}"),
        ("count", f"n > {many}"),
        ("count", f"n == {rng.randint(33, 3000)}"),
        ("count", f"n & {rng.choice([1, 3, 7])}"),
        ("ranks", f"w == {ranks}"),
        ("ranks", f"w > {more}"),
        ("ranks", "w % 2"),
        ("ranks", "w & (w - 1)"),
        ("ranks", "w % 3 == 0"),
        ("ranks", f"w < {rng.randint(3, 7)}"),
        ("both", "n % w"),
        ("both", "n < w"),
        ("both", f"n // w > {rng.randint(300, 3000)}"),
        ("both", f"n % {divisor} and w % 2"),
        ("rank", f"rank == {more}"),
        ("rank", f"rank > {rng.randint(8, 15)}"),
        ("network", "tw > 1"),
    ]


def bugs(count: int, seed: int) -> Iterator[Bug]:
    """Random bugs, the same for the same seed; whether one counts is asked later."""
    for index in range(count):
        rng = random.Random(f"{seed}/{index}")
        algorithm = rng.choice([*MUTANTS, "lrab_hierarchical_allreduce"])
        changes = MUTANTS.get(algorithm, [("combine nothing", 1), ("store nothing", 1), ("combine twice", 1)])
        sort, condition = rng.choice(_conditions(rng))
        if (sort == "network") != (algorithm == "lrab_hierarchical_allreduce"):
            continue
        change, nth = rng.choice(changes)
        place = _place(condition, sort, rng)
        if place is None:
            continue
        source = (ALGORITHMS / f"{algorithm}.py").read_text(encoding="utf-8")
        mutant = MUTANT.replace("{change!r}", repr(change)).replace("{nth}", str(nth))
        text = source + "\n_right = kernel\n" + mutant.replace("{victims}", "range(64)")
        text += GUARDED.replace("{condition}", condition)
        network = NETWORKS[index % 2] if sort == "network" else None
        yield Bug(f"{algorithm}: {change} ({nth})", sort, condition, text, *place, network)


def _place(condition: str, sort: str, rng: random.Random) -> tuple[int, int] | None:
    """A number of ranks and a count where it holds on a rank."""
    if sort == "network":
        return rng.choice([4, 6, 8]), 48
    holds = compile(condition, "a condition", "eval")
    found = [
        (w, n)
        for w in range(2, 33)
        for n in (*range(1, 70), *(near for number in _numbers(condition) for near in range(number - 1, number + 2)))
        if n > 0 and any(eval(holds, {}, {"w": w, "n": n, "rank": rank}) for rank in range(w))
    ]
    return rng.choice(found) if found else None


def _numbers(condition: str) -> list[int]:
    parts = [int(word) for word in condition.replace("(", " ").replace(")", " ").split() if word.isdecimal()]
    return [number for number in parts if number > 70] + [32 * number for number in parts if 300 <= number <= 3000]


def table(found: Sequence[tuple[Bug, str]]) -> str:
    """By what the condition is about, `found/planted`, in Markdown."""
    lines = ["| condition on | found | missed |", "|---|---|---|"]
    for sort in ("count", "ranks", "both", "rank", "network"):
        verdicts = [verdict for bug, verdict in found if bug.sort == sort]
        reported = sum(verdict not in ("correct", "undecided") for verdict in verdicts)
        lines.append(f"| {sort} | {reported}/{len(verdicts)} | {len(verdicts) - reported} |")
    return "\n".join(lines)
