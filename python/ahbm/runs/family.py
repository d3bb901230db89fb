"""A kernel's verdict at other numbers of ranks, counts, networks and roots than the one that was asked for.

A kernel that is right at one size may be wrong at the next. `tries` chooses cases around those that the kernel's own
conditions tell apart (`ahbm.check.conditions`), beside small numbers of ranks and counts that nothing divides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import ELEMENTS
from ahbm.base.verdicts import EXIT_CODES
from ahbm.check.checks import IDENTICAL, parse
from ahbm.check.conditions import Conditions, turns
from ahbm.config.topology import COUNT, resized, with_ranks
from ahbm.core.emulator import Emulator
from ahbm.errors import (
    AhbmError,
    BudgetError,
    ConfigError,
    Finding,
    FormatError,
    KernelError,
    LintError,
    TopologyError,
    UnsupportedError,
)
from ahbm.runs.judged import CLASSES, judged
from ahbm.runs.measure import prepare
from ahbm.source.module import ModuleAlgorithm

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.check.case import Case
    from ahbm.runs.keywords import Arguments

RANKS = tuple(range(2, 18))
"""Numbers of ranks that are tried beside the machine's own, where its network can have them."""
MOST_RANKS = 64
"""Up to here, conditions of the kernel choose further numbers of ranks."""
PRIME = 13
COUNTS = (2, 7, PRIME, 32)
"""Elements of a chunk that are tried beside 1, ranks - 1, ranks and ranks + 1."""
WITH_ALL_COUNTS = (2, 3, 4, 5)
"""Numbers of ranks at which all of them are tried, beside the machine's own if it is one of `RANKS`; elsewhere some."""
MOST_COUNT = 1 << 16
"""Up to here, conditions of the kernel choose further counts."""
EXTRA = 8
"""Most numbers of ranks, and most counts at one of them, that conditions add."""
AXES = ("system.sips.w", "system.sips.h", "system.sips.d")
SIPS = (COUNT, *AXES, "system.sips.topology")
"""Keys that fix the number of ranks or the network."""
EMPTY = "AHBM-K220"
"""A tile of no elements."""
UNFIT = ("AHBM-L105", "AHBM-L108")
"""The machine's slots or memories are too small for a count: no fault of the kernel."""


@dataclass(frozen=True, order=True)
class Try:
    """Where a kernel was tried."""

    ranks: int
    count: int
    """Elements of a chunk."""
    bytes: int
    """Of one rank's array."""
    network: str
    root: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return asdict(self)

    def __str__(self) -> str:
        root = f", root {self.root}" if self.root else ""
        return f"{self.ranks} ranks on {self.network}, {self.bytes} B of a rank{root}"


@dataclass(frozen=True)
class Tried:
    """What became of a kernel at every place where it was tried."""

    outcomes: tuple[tuple[Try, str], ...]
    """With the verdict. `refused`: the kernel or its `kernel_args` raises a ValueError or an AssertionError, or wants
    a tile of no elements. `unfit`: the machine's slots or memories are too small."""
    findings: tuple[Finding, ...] = ()
    """Of the first one with each verdict that is no success, the gravest verdict first."""

    def having(self, outcome: str) -> list[Try]:
        """The places with an outcome."""
        return [place for place, became in self.outcomes if became == outcome]

    @property
    def wrong(self) -> list[Try]:
        """The places with a verdict that is neither correct nor undecided."""
        return [place for place, became in self.outcomes if became in _FAILURES]

    @property
    def verdict(self) -> str:
        """The gravest."""
        return max((became for _, became in self.outcomes if became in _GRAVITY), key=_GRAVITY.index)

    def to_json(self) -> dict[str, Any]:
        """As JSON-serialisable data."""
        return {
            "holds": self.holds,
            "places": [{**place.to_json(), "verdict": found} for place, found in self.outcomes],
        }

    @property
    def holds(self) -> str:
        """What a correct verdict holds for, in words; empty where nothing is correct."""
        return _places(self.having("correct"))

    def lines(self) -> Iterator[str]:
        """In words."""
        for outcome in (*_WORDS, *reversed(_FAILURES)):
            if found := self.having(outcome):
                words = _WORDS.get(outcome, f"{outcome} for")
                yield f"{words} {_places(found)} ({len(found)} of {len(self.outcomes)} runs)"
                if outcome in _FAILURES:
                    yield f"  first at {min(found)}"


_GRAVITY = [verdict for verdict in EXIT_CODES if verdict != "unsupported"]
_FAILURES = [verdict for verdict in _GRAVITY if verdict not in ("correct", "undecided")]
_WORDS = {
    "correct": "correct for",
    "undecided": "undecided for",
    "refused": "the kernel refuses",
    "unfit": "the machine's slots or memories are too small for",
    "unsupported": "not supported for",
}


def _places(tries: Sequence[Try]) -> str:
    networks = list(dict.fromkeys(one.network for one in tries))
    ranks, counts = sorted({one.ranks for one in tries}), sorted({one.count for one in tries})
    roots = sorted({one.root for one in tries})
    on = f" on {', '.join(networks)}" if len(networks) > 1 else ""
    of = f"; chunks of {_numbers(counts)} elements" if counts != [1] else ""
    return f"{_numbers(ranks)} ranks{on}{of}" + (f"; roots {_numbers(roots)}" if len(roots) > 1 else "")


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers in order; three and more that follow each other as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts)


@dataclass(frozen=True)
class Family:
    """The cases around one that was asked for."""

    collective: str
    algorithm: Any
    topology: str | Path | Machine | None
    ccl: str | Path | None
    overrides: Mapping[str, object]
    arguments: Arguments
    """Of the request, without size and root where these vary."""
    asked: Case
    ranks: tuple[int, ...] = ()
    """The numbers of ranks; empty where they vary."""
    sizes: tuple[int, ...] = ()
    """Bytes of one rank's array; empty where they vary."""

    def tried(self, verdict: str, *, checks: str, seed: int, data: bool) -> Tried:
        """Judges every case; `verdict`: on the one that was asked for."""
        request = self.asked.request
        outcomes = [(Try(request.world_size, request.count, request.nbytes, self._network, request.root), verdict)]
        findings: dict[str, tuple[Finding, ...]] = {}
        # Whether values keep their bits does not depend on sizes; whether ranks' bits are equal, who wants them asks.
        names = parse(checks)
        names -= {"divergence"} if IDENTICAL not in names else set()
        for place, case in self._tries():
            outcome = _outcome(case, checks=names, seed=seed, data=data)
            # What nobody asked for and is not there is no news.
            if outcome != "unsupported" or self.ranks or self.sizes:
                outcomes.append((place, outcome))
            if outcome in _FAILURES and outcome not in findings:
                findings[outcome] = judged(case, checks=names, seed=seed, data=data)[1]
        tried = Tried(tuple(outcomes))
        failed = [found for failure in reversed(_FAILURES) for found in findings.get(failure, ())]
        return replace(tried, findings=tuple(failed))

    def _tries(self) -> Iterator[tuple[Try, Case]]:
        """The places and their cases, in order."""
        for network, ranks, emulator in self._machines():
            for number, nbytes in enumerate(self._sizes(emulator, ranks)):
                root = self._roots(ranks)[number % len(self._roots(ranks))]
                arguments: Any = {**self.arguments, "size": nbytes, **({"root": root} if root else {})}
                place = Try(ranks, 0, nbytes, network, root)
                try:
                    case = prepare(self.collective, self.algorithm, emulator=emulator, **arguments)
                except (ConfigError, UnsupportedError):
                    if self.sizes or self.ranks:
                        raise
                    continue
                request = case.request
                place = replace(place, count=request.count, bytes=request.nbytes)
                if request != self.asked.request or network != self._network:
                    yield place, case

    # -- ranks and networks

    @cached_property
    def _network(self) -> str:
        return self.asked.emulator.machine.topology

    @cached_property
    def _module(self) -> ModuleAlgorithm | None:
        found = self.asked.emulator.algorithm(self.algorithm)
        return found if isinstance(found, ModuleAlgorithm) else None

    def _machines(self) -> Iterator[tuple[str, int, Emulator]]:
        own = self.asked.request.world_size
        if self.ranks or self._module is None or self._is_fixed:
            for ranks in self.ranks or (own,):
                # What was asked for is tried, or refused with the machine's reason.
                emulator = self.asked.emulator if ranks == own else self._load(self._network, ranks)
                yield self._network, ranks, emulator
            return
        emulators: dict[tuple[str, int], Emulator] = {(self._network, own): self.asked.emulator}
        for network in self._networks:
            for ranks in sorted({own, *RANKS}):
                if (network, ranks) not in emulators and (made := self._emulator(network, ranks)) is not None:
                    emulators[network, ranks] = made
        self._ask([(ranks, emulator) for (network, ranks), emulator in emulators.items() if network == self._network])
        for ranks in self._further_ranks:
            if (self._network, ranks) not in emulators and (made := self._emulator(self._network, ranks)) is not None:
                emulators[self._network, ranks] = made
        self._ask([(ranks, made) for (_, ranks), made in list(emulators.items())[-1:]])
        for (network, ranks), emulator in emulators.items():
            yield network, ranks, emulator

    @property
    def _is_fixed(self) -> bool:
        """Whether the configuration says how many ranks there are."""
        settings = self.asked.emulator.settings(self.algorithm)
        return settings.world_size is not None or any(key in self.overrides for key in SIPS)

    @property
    def _networks(self) -> list[str]:
        """The machine's network, and others that the kernel's module names."""
        kinds = self._module.kinds if self._module is not None else None
        return [self._network, *(name for name in kinds or () if name != self._network)]

    def _load(self, network: str, ranks: int) -> Emulator:
        """The machine with another network or number of ranks. Raises as `Emulator.load`."""
        named = {} if network == self._network else {"system.sips.topology": network}
        topology = None if self.topology is None else str(self.topology)
        return Emulator.load(self.topology, self.ccl, with_ranks(ranks, topology, {**self.overrides, **named}))

    def _emulator(self, network: str, ranks: int) -> Emulator | None:
        """The same; None where it cannot be, and for a grid that is a row, which has no second direction."""
        shape = resized(network, ranks)
        if any(shape.get(axis) == 1 for axis in AXES):
            return None
        try:
            return self._load(network, ranks)
        except (ConfigError, TopologyError, UnsupportedError):
            return None

    # -- conditions

    @cached_property
    def _conditions(self) -> Conditions:
        return Conditions()

    def _ask(self, places: Sequence[tuple[int, Emulator]]) -> None:
        """Captures the kernel at the first and the last of some places, and notes what it compares."""
        if self._module is None:
            return
        for emulator in dict([*places[:1], *places[-1:]]).values():
            recording = self._conditions.recording(self._module)
            try:
                sized = {} if not self.sizes else {"size": self.sizes[0]}
                case = prepare(self.collective, recording, emulator=emulator, **{**self.arguments, **sized})  # type: ignore[arg-type]
                case.compiled()
            except AhbmError:
                continue  # What it compared before it failed is known.

    @property
    def _further_ranks(self) -> list[int]:
        """Both sides of every change of a condition."""
        counts = sorted({1, PRIME, self.asked.request.count})
        ranks = range(2, MOST_RANKS + 1)
        found = [2 + row for row in turns(self._conditions.sides(ranks, counts).reshape(len(ranks), -1))]
        # Those of the first conditions: what a loop asks of every number comes last.
        return sorted([number for number in found if number not in RANKS][:EXTRA])

    # -- sizes and roots

    def _sizes(self, emulator: Emulator, ranks: int) -> list[int]:
        """Bytes of one rank's array, in order."""
        if self.sizes:
            return list(self.sizes)
        kind = COLLECTIVES[self.collective]
        if kind.name == "barrier":
            return [0]
        chunks, item = kind.chunks(ranks), ELEMENTS[self.asked.request.dtype].storage.itemsize
        # A cube has its share of a rank's array.
        cubes = 1 if self.arguments.get("placement") is not None else emulator.machine.cubes
        own = self.asked.request
        counts = {ranks + 1, cubes * PRIME} if ranks < MOST_RANKS // 2 else {ranks + 1}
        if ranks in WITH_ALL_COUNTS or (ranks == own.world_size and ranks in RANKS):
            counts |= {1, own.count, *COUNTS, ranks - 1, ranks, cubes * (ranks + 1)}
            counts |= {cubes * count for count in self._further_counts(ranks)}
        return [count * chunks * item for count in sorted(counts)]

    def _further_counts(self, ranks: int) -> list[int]:
        """Elements of a chunk at one cube, on both sides of changes of conditions."""
        numbers = [number for number in self._conditions.numbers() if number]
        near = {
            (number + more) * by + off for number in numbers for more in (0, 1) for by in (1, ranks) for off in (-1, 0)
        }
        candidates = sorted({*range(1, 129), *(count for count in near if 0 < count <= MOST_COUNT)})
        found = [candidates[row] for row in turns(self._conditions.sides([ranks], candidates)[0])]
        return [count for count in found if count not in COUNTS][:EXTRA]

    def _roots(self, ranks: int) -> list[int]:
        kind = COLLECTIVES[self.collective]
        own = self.asked.request.root
        if not kind.rooted or "root" in self.arguments or self._module is None or "root" not in self._module.keywords:
            return [own]
        return list(dict.fromkeys((own, ranks - 1, 1)))


def _outcome(case: Case, *, checks: Iterable[str], seed: int, data: bool) -> str:
    """The verdict, `refused` or `unfit`."""
    try:
        case.compiled()
    except KernelError as error:
        # A tile without elements is none of the kernel's results: it stops before it computes anything.
        if isinstance(error.__cause__, ValueError | AssertionError) or error.code == EMPTY:
            return "refused"
    except LintError as error:
        if error.code in UNFIT:
            return "unfit"
    except BudgetError:
        return "unfit"
    except (ConfigError, FormatError):
        return "unsupported"  # A root or a network that there is not, or a size that a plan does not split.
    except tuple(CLASSES):
        pass  # The verdict says it.
    return judged(case, checks=checks, seed=seed, data=data, quick=True)[0]
