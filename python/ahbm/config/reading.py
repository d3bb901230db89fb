"""Options of reading the files of plans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ahbm._core import Plan, plan_formats, plan_limits, read_plan
from ahbm.errors import ConfigError

MSCCL, MSCCLPP, CHAKRA = (suffix for suffix, _ in plan_formats())
SCHEDULE = ".csv"
SUFFIXES = (MSCCL, MSCCLPP, CHAKRA, SCHEDULE)
"""Endings of the names of plans."""


@dataclass(frozen=True)
class Reading:
    """Options of a reader; in ccl.yaml, keys beside `plan:`."""

    quirks: bool = False
    """Follow the defects of the runtime that a format belongs to."""
    lenient: bool = False
    """Leave out the dependencies of a trace on nodes that do not exist."""
    limits: tuple[tuple[str, int], ...] = ()
    """Limits by name that differ from `ahbm._core.plan_limits()`."""

    def read(self, path: str | Path) -> Plan:
        """The plan at `path`. Raises FormatError, BudgetError, UnsupportedError."""
        return read_plan(path, quirks=self.quirks, lenient=self.lenient, limits=self.limits)

    @staticmethod
    def of(entry: Mapping[str, Any]) -> Reading:
        """That of an entry of ccl.yaml."""
        return Reading(entry.get("quirks", False), entry.get("lenient", False), tuple(entry.get("limits", {}).items()))

    def entry(self) -> dict[str, object]:
        """The keys of an entry of ccl.yaml for what is not the default."""
        changed = {key: value for key, value in asdict(self).items() if value != getattr(PLAIN, key)}
        return {**changed, **({"limits": dict(self.limits)} if self.limits else {})}


PLAIN = Reading()
"""As files are read where nothing else is said."""


def parse_limits(settings: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """`["ranks=1024"]` as pairs. Raises ConfigError `AHBM-C147`."""
    known = dict(plan_limits())
    pairs = []
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known or not (re.fullmatch("[0-9]{1,20}", value) and int(value) < 2**64):
            hint = ", ".join(f"{name}={default}" for name, default in known.items())
            raise ConfigError("AHBM-C147", f"--limit {setting}: no NAME=N of a known limit", hint=hint)
        pairs.append((name, int(value)))
    return tuple(pairs)
