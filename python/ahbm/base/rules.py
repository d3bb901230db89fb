"""Ordered rules, of which the first that fits a call holds: those of ccl.yaml, of selectors, and of tuning files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise
from math import inf, isqrt
from typing import Any

from ahbm._core import RuleTable
from ahbm.base.knobs import KNOBS, Knobs

UNLIMITED = 2**64 - 1
"""The largest size of which a library is told: `size_t` of 64 bits."""


@dataclass(frozen=True)
class Span:
    """Whole numbers from `least` to `most`, both included; `most` None is no bound."""

    least: int = 0
    most: int | None = None

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.least <= number and (self.most is None or number <= self.most)

    @property
    def ends(self) -> tuple[int, int]:
        """Both bounds, as numbers of 64 bits."""
        return min(self.least, UNLIMITED), UNLIMITED if self.most is None else min(self.most, UNLIMITED)

    def covers(self, other: Span) -> bool:
        """Whether every number of `other` is in it."""
        return self.least <= other.least and (self.most is None or (other.most is not None and other.most <= self.most))

    @property
    def is_empty(self) -> bool:
        """Whether no number is in it."""
        return self.most is not None and self.most < self.least


ANY = Span()


@dataclass(frozen=True)
class Query:
    """A call, as rules see it."""

    collective: str
    nbytes: int
    """Of one rank's array."""
    ranks: int
    nodes: int = 1
    pipe_ops: int = 1
    registered: bool = False


@dataclass(frozen=True)
class Rule(Knobs):
    """One rule: for which calls it is, and what they run."""

    collective: str
    """By this project's name."""
    algorithm: str
    """A name: the emulator's, or the one that a file's library has."""
    nbytes: Span = ANY
    """Bytes of one rank's array, as `ahbm run --size`; with `per_rank`, of that divided by the ranks, rounded down."""
    ranks: Span = ANY
    nodes: Span = ANY
    ranks_per_node: Span = ANY
    per_rank: bool = False
    pipe_ops: int | None = None
    """Collectives that are launched together; None: any number."""
    registered: bool | None = None
    """Whether the user's buffers are registered; None: either."""
    line: int = field(default=0, compare=False)
    """Of the file that it was read from; 0: of none."""

    @staticmethod
    def between(
        collective: str,
        algorithm: str,
        min_bytes: int = 0,
        max_bytes: int = UNLIMITED,
        min_ranks: int = 0,
        max_ranks: int = UNLIMITED,
        min_nodes: int = 0,
        max_nodes: int = UNLIMITED,
        per_rank: bool = False,
        protocol: str | None = None,
        channels: int | None = None,
        threads: int | None = None,
        chunk_bytes: int | None = None,
    ) -> Rule:
        """A rule by its bounds, which are included; `UNLIMITED` is no bound."""

        def span(least: int, most: int) -> Span:
            return Span(least, None if most == UNLIMITED else most)

        return Rule(
            collective,
            algorithm,
            span(min_bytes, max_bytes),
            span(min_ranks, max_ranks),
            span(min_nodes, max_nodes),
            per_rank=per_rank,
            protocol=protocol,
            channels=channels,
            threads=threads,
            chunk_bytes=chunk_bytes,
        )

    @property
    def bounds(self) -> dict[str, Any]:
        """The arguments of `between` that make this rule."""
        spans = {"bytes": self.nbytes, "ranks": self.ranks, "nodes": self.nodes}
        ends = {
            f"{end}_{name}": value
            for name, s in spans.items()
            for end, value in zip(("min", "max"), s.ends, strict=True)
        }
        knobs = {name: getattr(self, name) for name in KNOBS}
        return {"collective": self.collective, "algorithm": self.algorithm, **ends, "per_rank": self.per_rank, **knobs}

    @property
    def condition(self) -> tuple[object, ...]:
        """All that a call must fulfil besides its size."""
        return (
            self.collective,
            self.ranks,
            self.nodes,
            self.ranks_per_node,
            self.per_rank,
            self.pipe_ops,
            self.registered,
        )

    @property
    def empty(self) -> str | None:
        """A range of which nothing is part, so that no call reaches the rule; None without one."""
        spans = {"bytes": self.nbytes, "ranks": self.ranks, "nodes": self.nodes, "ranks per node": self.ranks_per_node}
        return next((f"{span.least} to {span.most} {name}" for name, span in spans.items() if span.is_empty), None)

    @property
    def chosen(self) -> tuple[object, ...]:
        """The algorithm and its knobs."""
        return self.algorithm, *(getattr(self, name) for name in KNOBS)

    def includes(self, other: Rule) -> bool:
        """Whether it is for every call that `other` is for."""
        return (
            self.collective == other.collective
            and self.per_rank == other.per_rank
            and self.nbytes.covers(other.nbytes)
            and self.ranks.covers(other.ranks)
            and self.nodes.covers(other.nodes)
            and self.ranks_per_node.covers(other.ranks_per_node)
            and self.pipe_ops in (None, other.pipe_ops)
            and self.registered in (None, other.registered)
        )


@dataclass(frozen=True)
class Rules:
    """Rules of which the first that fits a call holds."""

    rules: tuple[Rule, ...] = ()

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    @cached_property
    def _table(self) -> RuleTable:
        return RuleTable(
            [
                (r.collective, *r.nbytes.ends, r.per_rank, *r.ranks.ends, *r.nodes.ends, *r.ranks_per_node.ends)
                for r in self.rules
            ]
        )

    def __getstate__(self) -> dict[str, object]:
        return {"rules": self.rules}

    def fitting(self, call: Query) -> Iterator[int]:
        """Positions of the rules that fit a call, in order."""
        # A size that is none is refused by who takes it.
        asked = call.collective, min(max(call.nbytes, 0), UNLIMITED), call.ranks, call.nodes
        at = self._table.first(*asked)
        while at is not None:
            rule = self.rules[at]
            if rule.pipe_ops in (None, call.pipe_ops) and rule.registered in (None, call.registered):
                yield at
            at = self._table.first(*asked, at + 1)

    def choose(self, call: Query, allowed: Callable[[Rule], bool] = lambda rule: True) -> Rule | None:
        """The rule of a call: the first that fits it and is allowed, as libraries go on where an algorithm cannot run.
        None: the choice is left to the library."""
        return next((self.rules[at] for at in self.fitting(call) if allowed(self.rules[at])), None)

    def unreached(self) -> Iterator[tuple[Rule, Rule]]:
        """Each rule that is for calls and that none reaches, and the earlier rule that takes all of them."""
        # Sizes are compared first, as plain numbers: a file may have thousands of rules.
        ends = [(rule.nbytes.least, inf if rule.nbytes.most is None else rule.nbytes.most) for rule in self.rules]
        for at, rule in enumerate(self.rules):
            if rule.empty:
                continue
            first, last = ends[at]
            covering = (i for i, (least, most) in enumerate(ends[:at]) if least <= first and last <= most)
            before = next((self.rules[i] for i in covering if self.rules[i].includes(rule)), None)
            if before is not None:
                yield rule, before


def border(below: int, above: int, ranks: int) -> int:
    """The last size of the range of `below`, of which `above` is no part: near their geometric mean.

    What begins behind it is a multiple of `ranks` bytes where one lies between them, so that no border stands inside
    the share of a rank: formats that count bytes per rank can then state it.
    """
    mean = isqrt(below * above)
    whole = (mean // ranks + 1) * ranks
    return max(min(whole if whole <= above else mean + 1, above), below + 1) - 1


def spans(sizes: Sequence[int], ranks: int) -> list[Span]:
    """The range of each of some ascending sizes, from border to border: the first begins at 0, the last has no end."""
    ends: list[int | None] = [border(below, above, ranks) for below, above in pairwise(sizes)]
    found, least = [], 0
    for most in [*ends, None][: len(sizes)]:
        found.append(Span(least, most))
        least = 0 if most is None else most + 1
    return found


def merged(rules: Iterable[Rule], grows: Callable[[Rule], bool] = lambda rule: True) -> Iterator[Rule]:
    """Rules in ascending order of sizes, neighbours with one condition and choice as one, where that `grows`."""
    for _, run in groupby(rules, key=lambda rule: (rule.condition, rule.chosen)):
        first, *others = run
        for rule in others:
            if first.nbytes.most is not None and rule.nbytes.least == first.nbytes.most + 1 and grows(rule):
                first = replace(first, nbytes=Span(first.nbytes.least, rule.nbytes.most))
            else:
                yield first
                first = rule
        yield first
