"""The options of what can be run: a record for each kind of target, and the one place that refuses all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm.base.sizes import one_size, parse_size
from ahbm.config.reading import PLAIN, Reading
from ahbm.errors import ConfigError
from ahbm.job.graphs import overrides_of
from ahbm.job.reading import How
from ahbm.runs import plans
from ahbm.source.function import AnyAlgorithm, as_algorithm
from ahbm.source.plan import SLOTS

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.ranks.setup import Setup
    from ahbm.selectors.protocol import AnySelector

DTYPE, OP = "f16", "sum"
"""Element type and operator where nobody says them."""
UNLIMITED = -1
"""Depth of a queue that holds every message."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """The machine and its configuration. None leaves a choice to the target."""

    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True)
class OfCollective(Where):
    """How a collective is run."""

    algorithm: AnyAlgorithm = None
    selector: AnySelector = None
    """`selector(algorithms, request)` chooses."""
    size: int | None = None
    """Size of one rank's array."""
    dtype: str = DTYPE
    op: str = OP
    root: int = 0
    device: bool = False
    """Device tensors: one tile of the size on every cube."""


@dataclass(frozen=True, kw_only=True)
class OfPlan(Where):
    """How a plan is read, lowered and run."""

    size: int | None = None
    """Size of one rank's array."""
    dtype: str = DTYPE
    op: str = OP
    slots: int | None = None
    """Messages a queue holds; `UNLIMITED` for no bound."""
    protocol: str | None = None
    """Simple, LL or LL128."""
    slice_bytes: int | None = None
    """Size of the largest message instead of the protocol's."""
    instances: int | None = None
    """Parallel copies."""
    reading: Reading = PLAIN
    """How the file is read."""
    knobs: bool = True
    """The knobs beside the file (`NAME.knobs.json`) hold for what is not said here."""

    def lowering(self, depth: int | None) -> plans.Options:
        """How it is read and lowered; its queues hold `depth` messages where nothing is said."""
        slots = depth if self.slots is None else None if self.slots == UNLIMITED else self.slots
        return plans.Options(self.protocol, self.instances or 1, self.slice_bytes, self.reading, slots=slots)

    def lowering_timed(self, buffers: bool) -> plans.Options:
        """How one that runs for its time is; the queues of a trace, which names no buffers, hold what is sent."""
        return self.lowering(SLOTS if buffers or self.slots is not None else None)


@dataclass(frozen=True, kw_only=True)
class OfJob(Where):
    """How a job is read and replayed."""

    algorithm: AnyAlgorithm = None
    """Of the collectives that it performs."""
    selector: AnySelector = None
    """Of all collectives."""
    collective_algorithm: tuple[str, ...] = ()
    """Algorithm graphs, `FILE` or `COLLECTIVE=FILE`, for the calls of as many ranks as they have."""
    how: How = field(default_factory=partial(How, dtype=DTYPE, op=OP))

    @staticmethod
    def of(target: str, options: Mapping[str, Any]) -> OfJob:
        """These options. Raises ConfigError (AHBM-C146) for those that jobs do not have."""
        return OfJob().changed(target, options)

    def changed(self, target: str, options: Mapping[str, Any]) -> OfJob:
        """With other values of some options. Raises as `of`."""
        own, reading = names_of(OfJob), names_of(How)
        only(target, "is a job", options, own | reading | OF_FILES.keys())
        if options.get("reading", PLAIN).quirks:
            refuse(target, "is a job", ["quirks"])
        how = replace(self.how, **{name: value for name, value in options.items() if name in reading})
        return replace(self, how=how, **{name: value for name, value in options.items() if name in own})

    def setup(self) -> Setup:
        """The machine that it is replayed on, and what its calls run by."""
        from ahbm.ranks.setup import Setup

        graphs = overrides_of(self.collective_algorithm)
        overrides, algorithm = {**(self.overrides or {}), **graphs} or None, as_algorithm(self.algorithm)
        return Setup(self.topology, self.ccl, overrides, algorithm, selector=self.selector)


OF_SCRIPTS: dict[str, object] = {"args": (), "program": None, "frontend": None}
"""Options of scripts that lower a plan: the arguments that follow the script's name; which of several programs is
meant, by name or position, else the last; "upstream" leaves lowering to the installed package of the language."""
OF_FILES: dict[str, object] = {"kind": None}
"""Options of traces: "job" or "algorithm"; None as the trace says."""
_FLAGS = {
    "slice_bytes": "slice",
    "factors": "compute",
    "fold": "no-fold",
    "kind": "as",
    "reading": "limit, --lenient, --quirks",
}


@cache
def defaults() -> Mapping[str, object]:
    """Every option of `ahbm.open` by its name, with the value that it has where nobody says it."""
    found: dict[str, object] = {}
    for kind in (OfCollective, OfPlan, OfJob, How):
        found |= {each.name: each.default for each in fields(kind) if each.name != "how"}
    # Whoever names the lanes that jobs have without a word has said so.
    return found | OF_SCRIPTS | OF_FILES | {"dtype": DTYPE, "op": OP, "lanes": None}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some options that say something. Raises as `known`."""
    usual, said = defaults(), one_size(options)
    if isinstance(said.get("size"), str):
        said["size"] = parse_size(said["size"])
    return {name: value for name, value in known(said).items() if not _says_nothing(value, usual[name])}


def known(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """These options. Raises ConfigError (AHBM-C146) for one that there is not."""
    known = defaults()
    unknown = [name for name in options if name not in known]
    if unknown:
        hint = f"one of {', '.join(known)}"
        raise ConfigError("AHBM-C146", f"open: there is no term {unknown[0]!r}", hint=hint)
    return options


def _says_nothing(value: Any, default: object) -> bool:
    if value is None or default is MISSING:
        return value is None
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
        return not value
    return type(value) is type(default) and value == default


def names_of(kind: type) -> set[str]:
    """The options that a kind of target has."""
    return {each.name for each in fields(kind) if each.name != "how"}


def refuse(target: object, what: str, names: Collection[str], hint: str | None = None) -> None:
    """Raises ConfigError (AHBM-C146) for options, if there are any, that a target, in words, does not have."""
    if names:
        flags = ", ".join(f"--{_FLAGS.get(name, name.replace('_', '-'))}" for name in names)
        raise ConfigError("AHBM-C146", f"{target} {what}: it takes no {flags}", hint=hint)


def only(
    target: object, what: str, options: Mapping[str, Any], known: Collection[str], hint: str | None = None
) -> None:
    """As `refuse`, for the options that are not among the known."""
    refuse(target, what, [name for name in options if name not in known], hint)
