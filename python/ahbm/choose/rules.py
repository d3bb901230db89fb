"""Ordered rules that choose an algorithm and its knobs for a call: what tuning files are read to and written from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf

from ahbm.errors import BudgetError, Finding, Site

MAX_RULES = 4096
"""Rules of one file; a longer one is refused."""
UNLIMITED = 2**64 - 1
"""The largest size of which a library is told: `size_t` of 64 bits."""


@dataclass(frozen=True)
class Span:
    """Whole numbers from `least` to `most`, both included; `most` None is no bound."""

    least: int = 0
    most: int | None = None

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.least <= number and (self.most is None or number <= self.most)

    def covers(self, other: Span) -> bool:
        """Whether every number of `other` is in it."""
        return self.least <= other.least and (self.most is None or (other.most is not None and other.most <= self.most))

    @property
    def is_empty(self) -> bool:
        """Whether no number is in it."""
        return self.most is not None and self.most < self.least


ANY = Span()


@dataclass(frozen=True)
class Rule:
    """One rule: for which calls it is, and what they run."""

    collective: str
    """By this project's name."""
    algorithm: str
    """By the name that the file's library has for it."""
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
    protocol: str | None = None
    channels: int | None = None
    threads: int | None = None
    """Threads of one thread block."""
    chunk_bytes: int | None = None
    line: int = field(default=0, compare=False)
    """Of the file that it was read from; 0: of none."""

    def fits(self, call: Query) -> bool:
        """Whether it is for a call."""
        share = call.nbytes // call.ranks if self.per_rank else call.nbytes
        return (
            self.collective == call.collective
            and share in self.nbytes
            and call.ranks in self.ranks
            and call.nodes in self.nodes
            and call.ranks // call.nodes in self.ranks_per_node
            and self.pipe_ops in (None, call.pipe_ops)
            and self.registered in (None, call.registered)
        )

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
    def choice(self) -> tuple[object, ...]:
        """What it chooses."""
        return self.algorithm, self.protocol, self.channels, self.threads, self.chunk_bytes

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
class Query:
    """A call as tuning files see it."""

    collective: str
    nbytes: int
    """Of one rank's array."""
    ranks: int
    nodes: int = 1
    pipe_ops: int = 1
    registered: bool = False


@dataclass(frozen=True)
class Rules:
    """Rules of which the first that fits a call holds."""

    rules: tuple[Rule, ...] = ()

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def choose(self, call: Query, allowed: Callable[[Rule], bool] = lambda rule: True) -> Rule | None:
        """The rule of a call: the first that fits it and is allowed, as libraries go on where an algorithm cannot run.
        None: the choice is left to the library."""
        return next((rule for rule in self.rules if rule.fits(call) and allowed(rule)), None)

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


def bounded(rules: Iterable[Rule], origin: str) -> Rules:
    """The rules of a file. Raises BudgetError (AHBM-B214) for more than `MAX_RULES`."""
    found: list[Rule] = []
    for rule in rules:
        found.append(rule)
        if len(found) > MAX_RULES:
            raise BudgetError(
                "AHBM-B214",
                f"{origin} has more than {MAX_RULES} rules",
                hint="merge neighbouring ranges with one choice, or tune fewer sizes",
            )
    return Rules(tuple(found))


def unreached(rules: Rules, origin: str) -> list[Finding]:
    """A warning (AHBM-F198) for each rule that no call reaches."""
    empty = [
        Finding(
            "AHBM-F198",
            f"no call reaches this rule: its range, {rule.empty}, is empty",
            (Site(rule.algorithm, f"{origin}:{rule.line}"),),
            "the smaller bound first",
        )
        for rule in rules
        if rule.empty
    ]
    return empty + [
        Finding(
            "AHBM-F198",
            f"no call reaches this rule: line {before.line} takes all of its calls",
            (Site(rule.algorithm, f"{origin}:{rule.line}"), Site(before.algorithm, f"{origin}:{before.line}")),
            "remove one of them, or put the narrower one first",
        )
        for rule, before in rules.unreached()
    ]


def merged(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Rules in ascending order of sizes, neighbours with one condition and choice as one."""
    for _, run in groupby(rules, key=lambda rule: (rule.condition, rule.choice)):
        first, *others = run
        for rule in others:
            if first.nbytes.most is not None and rule.nbytes.least == first.nbytes.most + 1:
                first = replace(first, nbytes=Span(first.nbytes.least, rule.nbytes.most))
            else:
                yield first
                first = rule
        yield first
