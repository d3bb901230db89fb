"""What a rank has kept of its journal, and the part of it that all ranks have: iterations of the same numbers.

A rank writes down all that it has. Who answers looks at the iterations that every rank has found to be like its usual
one, in the order of their numbers. Kernels may differ from rank to rank, as those of pipeline stages do: an iteration
has the same number on every rank, so what one sends another receives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ahbm.torch.device.steps import Found, Range
from ahbm.torch.journal import Node


@dataclass
class Kept:
    """Of one rank."""

    nodes: list[Node]
    found: Found
    marked: bool
    """Whether marks made the iterations; the names of kernels did otherwise."""
    whole: bool
    """Whether nothing was left out of `nodes`."""
    steps: int
    """Iterations that ended, those that were not kept included."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else the rank tells: its peak of memory, its kernels, how its script ended."""

    def store(self, path: Path) -> None:
        """Writes it, as JSON. Raises OSError."""
        found = [self.found.whole, list(self.found.looked.items()), list(self.found.beside.items())]
        rest = [self.nodes, found, self.marked, self.whole, self.steps, self.facts]
        path.write_text(json.dumps(rest, default=int))

    @classmethod
    def load(cls, path: Path) -> Kept:
        """What `store` has written."""
        nodes, (whole, looked, beside), marked, all_of_it, steps, described = json.loads(path.read_text())
        found = Found([(a, b) for a, b in whole], {}, {number: (a, b) for number, (a, b) in beside})
        found.looked = {number: [(a, b) for a, b in parts] for number, parts in looked}
        nodes = [(*rest, [(key, value) for key, value in facts]) for *rest, facts in nodes]
        return cls(nodes, found, marked, all_of_it, steps, described)


def common(ranks: Sequence[Kept], limit: int) -> list[int]:
    """The numbers of the iterations that are looked at: at most `limit` (one at least), and the first where there are
    no later ones; empty where there are none at all."""
    usual = set.intersection(*(set(kept.found.looked) for kept in ranks))
    if usual and limit:
        return sorted(usual)[:limit]
    several = min(len(kept.found.whole) for kept in ranks)
    return list(range(1, min(several, limit + 1))) or list(range(min(several, 1)))


def parts(kept: Kept, number: int) -> list[Range]:
    """The nodes of an iteration."""
    return kept.found.looked.get(number) or [kept.found.whole[number]]


def cut(kept: Kept, numbers: Sequence[int]) -> tuple[list[Node], list[int]]:
    """The nodes of some iterations, numbered anew, and how many lie before the end of each. What waited for a node
    that is not among them waits for what that one waited for, except before the first of them."""
    ranges = [part for number in numbers for part in parts(kept, number)]
    if not ranges:
        return [], []
    first, last = ranges[0][0], ranges[-1][1]
    stays = bytearray(len(kept.nodes))
    for start, end in ranges:
        stays[start:end] = b"\x01" * (end - start)
    stands: dict[int, list[int]] = {}
    out: list[Node] = []
    for number in range(first, last):
        kind, name, deps, begin, took, facts = kept.nodes[number]
        waits = list(dict.fromkeys(new for dep in deps if dep >= first for new in stands[dep]))
        if stays[number]:
            stands[number] = [len(out)]
            out.append((kind, name, waits, begin, took, facts))
        else:
            stands[number] = waits
    edges, at = list[int](), 0
    for number in numbers:
        at += sum(end - start for start, end in parts(kept, number))
        edges.append(at)
    return out, edges
