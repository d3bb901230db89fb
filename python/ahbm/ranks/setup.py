"""The choices of a run, and the defaults for the choices that it leaves open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.core.emulator import Emulator
    from ahbm.selectors.protocol import AnySelector
    from ahbm.source.algorithm import Algorithm


@dataclass(frozen=True)
class Setup:
    """The choices of a run; None leaves the choice to the next in line: spawn, command line, environment."""

    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] | None = None
    algorithm: str | Algorithm | None = None
    """Of every collective that it performs; asked for an all_reduce that it does not perform, it refuses."""
    timeout_s: float | None = None
    accumulate: str | None = None
    """"f32": narrow floats are reduced in f32 and rounded once at the end; their time stays that of the schedule."""
    check: str | None = None
    """Checks of every call that is the first of its shape: names as for `ahbm.run`, or "none"; None: AHBM_CHECK, else
    "result"."""
    selector: AnySelector = field(default=None, compare=False, repr=False)
    """Chooses the algorithm of every collective, see `ahbm.selectors.protocol`. Each rank has its own:
    ranks agree on what it answers, not on it."""
    performed: set[str] | None = field(default=None, compare=False, repr=False)
    """Where somebody asks: the collectives for which `algorithm` was taken."""

    def over(self, other: Setup) -> Setup:
        """This setup where it says something, `other` where it does not."""
        return Setup(
            *(getattr(other, f.name) if getattr(self, f.name) is None else getattr(self, f.name) for f in fields(Setup))
        )

    def sized(self, ranks: int) -> Setup:
        """This setup with at least as many SIPs as ranks, unless an argument or AHBM_TOPOLOGY names the topology."""
        from ahbm.config.topology import sized

        overrides = sized(ranks, self.topology, self.overrides)
        return self if overrides == dict(self.overrides or {}) else replace(self, overrides=overrides)

    def described(self) -> dict[str, str]:
        """The choices on which ranks must agree, for those in other processes: of each that was made, or that the
        environment makes, its text, the hash of a machine or the name of an algorithm."""
        from ahbm.base.verdicts import CHECK_ENV
        from ahbm.config import ccl, topology

        usual = {"topology": topology.ENV, "ccl": ccl.ENV, "check": CHECK_ENV}
        found: dict[str, str] = {}
        for each in fields(self):
            value: Any = getattr(self, each.name) if each.compare else None
            if value is None and each.name in usual:
                value = os.environ.get(usual[each.name]) or None
            if isinstance(value, Mapping):
                value = ", ".join(f"{key}={_whole(value[key])}" for key in sorted(value)) or None
            elif hasattr(value, "hash"):
                value = f"a machine of hash {value.hash:#x}"
            elif hasattr(value, "name") and not isinstance(value, str | Path):
                value = value.name
            if value is not None:
                found[each.name] = str(value)
        return found

    def emulator(self) -> Emulator:
        """The emulator this setup asks for. Raises TopologyError, and ConfigError, for an unknown algorithm too."""
        from ahbm.core.emulator import Emulator

        emulator = Emulator.load(self.topology, self.ccl, self.overrides)
        if self.algorithm is not None:
            emulator.algorithm(self.algorithm)
        return emulator


def _whole(value: object) -> object:
    """An integer for a float that is one: 100 and 100.0 are the same choice."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_NOTHING = Setup()
_ambient: ContextVar[Setup] = ContextVar("ahbm_setup", default=_NOTHING)


def ambient() -> Setup:
    """The setup that holds where `spawn` and `init_process_group` say nothing."""
    return _ambient.get()


@contextmanager
def using(setup: Setup) -> Iterator[None]:
    """Makes `setup` the ambient one inside the `with` block."""
    token = _ambient.set(setup.over(ambient()))
    try:
        yield
    finally:
        _ambient.reset(token)
