"""Points that are drawn from ranges: at random, or a Sobol sequence, which fills the ranges evenly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ahbm.base.arguments import shown
from ahbm.base.optional import needed
from ahbm.base.sizes import parse_size
from ahbm.config.checks import shaped
from ahbm.errors import AhbmError, ConfigError

_BOUND = {"type": ["number", "string"]}
_TOLD = "[least, most], or {from: least, to: most, log: true}"


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`; integers where both are."""

    least: float
    most: float
    log: bool = False
    """Whether the logarithms are evenly spread, not the numbers."""

    @staticmethod
    def of(key: str, value: Any) -> Range:
        """The range of a key, in either of its spellings. Raises ConfigError (AHBM-C185)."""
        found = value
        if isinstance(value, Mapping) and {"from", "to"} <= set(value) <= {"from", "to", "log"}:
            found = [value["from"], value["to"]]
        if not isinstance(found, list | tuple) or len(found) != 2:
            raise ConfigError("AHBM-C185", f"the range of {key} must be {_TOLD}, not {shown(value)}")
        least, most = (_number(key, bound) for bound in found)
        log = value.get("log", False) if isinstance(value, Mapping) else key == "sizes"
        if not isinstance(log, bool) or least > most or (log and least <= 0):
            why = "it ends before it begins" if least > most else "a logarithm needs numbers above 0"
            raise ConfigError("AHBM-C185", f"the range of {key}, {shown(value)}, is none: {why}")
        return Range(least, most, log)

    def at(self, share: float) -> float | int:
        """The number at a share from 0 to below 1 of the range; of integers each is as likely."""
        whole = isinstance(self.least, int) and isinstance(self.most, int)
        least, most = self.least, self.most + 1 if whole else self.most
        value = least * math.exp(share * math.log(most / least)) if self.log else least + share * (most - least)
        # Six digits are as good as all for a parameter, and can be read.
        return min(int(value), int(self.most)) if whole else float(f"{value:.6g}")


@shaped(
    {
        "anyOf": [
            {"type": "array", "items": _BOUND, "minItems": 2, "maxItems": 2},
            {
                "type": "object",
                "properties": {"from": _BOUND, "to": _BOUND, "log": {"type": "boolean"}},
                "required": ["from", "to"],
                "additionalProperties": False,
            },
        ]
    }
)
def ranged(value: Any) -> str | None:
    """A range in a file."""
    try:
        Range.of("a key", value)
    except AhbmError as error:
        return f"{_TOLD} ({error.message})"
    return None


def sampled(ranges: Mapping[str, Range], random: int, sobol: int, seed: int) -> Sequence[dict[str, float | int]]:
    """`random` points of the ranges drawn at random, or `sobol` points of a scrambled Sobol sequence; one empty point
    without ranges.

    Raises UnsupportedError (AHBM-U145) for a Sobol sequence where scipy is not installed.
    """
    if not ranges:
        return [{}]
    if random:
        draw = Random(seed)
        return [{key: one.at(draw.random()) for key, one in ranges.items()} for _ in range(random)]
    hint = "pip install ahbm[sweep]; or random: N, which needs nothing"
    qmc = needed("scipy.stats.qmc", "scipy is not installed", hint)
    with warnings.catch_warnings():
        # Any number of points is taken; powers of two are spread best.
        warnings.simplefilter("ignore", UserWarning)
        shares = qmc.Sobol(len(ranges), scramble=True, seed=seed).random(sobol)
    return [
        {key: one.at(float(share)) for (key, one), share in zip(ranges.items(), row, strict=True)} for row in shares
    ]


def _number(key: str, bound: Any) -> float:
    if isinstance(bound, str):
        return parse_size(bound)
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        raise ConfigError("AHBM-C185", f"{shown(bound)} is no bound of the range of {key}", hint=_TOLD)
    return bound
