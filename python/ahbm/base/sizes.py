"""Sizes that are asked for, and those that can run: the rule of nccl-tests, at one place.

A size is rounded down to a multiple of what a collective can divide; where nothing would be left, it is the least
multiple. Whoever changes a size says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import lcm
from typing import Any, NamedTuple

from ahbm.base.arguments import shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.elements import element
from ahbm.errors import ConfigError

NAMED = 8
"""Sizes that one note names."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes of `256`, `1_000_000`, `1e6`, `4K`, `1M`, `2G` (powers of 1024, as `4KB` and `4KiB` are).

    Raises ConfigError (AHBM-C147).
    """
    # More digits are no size of anything, and Python reads only so many.
    found = re.fullmatch(r"([0-9](?:_?[0-9]){0,17})(?:E\+?([0-9]{1,2}))?(?:([KMG])(?:IB?|B)?|B)?", text.strip().upper())
    nbytes = int(found[1]) * 10 ** int(found[2] or 0) * _UNITS[found[3] or ""] if found else 1 << 60
    if nbytes >= 1 << 60:
        hint = "bytes, or a number with K, M or G for powers of 1024: 256, 64K, 1M, 1MiB, 1e6"
        raise ConfigError("AHBM-C147", f"{shown(text)} is no size", hint=hint)
    return nbytes


def one_size(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords in which the size of one rank's array has one name, `size`: `bytes_per_rank` says the same.

    Raises ConfigError (AHBM-C128) where both say something.
    """
    found = dict(given)
    older = found.pop("bytes_per_rank", None)
    if older is None:
        return found
    if found.get("size") is not None:
        raise ConfigError("AHBM-C128", "size and bytes_per_rank are both given, and say the same", hint="give size")
    return found | {"size": older}


@dataclass(frozen=True)
class Resized:
    """Sizes that were asked for, in bytes, and the one that ran in their place."""

    asked: tuple[int, ...]
    ran: int
    unit: int
    """Bytes of which sizes must be multiples ..."""
    of: str
    """... and of what, such as "all_gather of 8 ranks"."""

    def __str__(self) -> str:
        return "; ".join(resize_notes([self]))

    def to_json(self) -> dict[str, Any]:
        """The fields, and all of it as a sentence."""
        return {"asked": list(self.asked), "ran": self.ran, "unit": self.unit, "of": self.of, "note": str(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Resized:
        """The inverse of `to_json`. Raises KeyError, TypeError."""
        return Resized(tuple(data["asked"]), data["ran"], data["unit"], data["of"])


def resize_notes(resized: Iterable[Resized | None]) -> list[str]:
    """A sentence for each thing whose sizes were changed."""
    found: dict[tuple[str, int], dict[str, None]] = {}
    for one in resized:
        if one is not None:
            asked = [f"{size}" for size in one.asked[:NAMED]]
            more = f" and {len(one.asked) - NAMED} more" if len(one.asked) > NAMED else ""
            found.setdefault((one.of, one.unit), {})[f"{', '.join(asked)}{more} B became {one.ran} B"] = None
    sentences = []
    for (of, unit), changes in found.items():
        more = f", and {len(changes) - NAMED} sizes more" if len(changes) > NAMED else ""
        sentences.append(f"{', '.join(list(changes)[:NAMED])}{more}: {of} takes multiples of {unit} B")
    return sentences


class Unit(NamedTuple):
    """What sizes must be multiples of."""

    nbytes: int
    of: str

    @staticmethod
    def of_arrays(collective: str, ranks: int, dtype: str) -> Unit:
        """Of one rank's array: elements, as many as there are chunks. Raises UnsupportedError (AHBM-U130)."""
        chunks, itemsize = COLLECTIVES[collective].chunks(ranks), element(dtype).storage.itemsize
        return Unit(itemsize * chunks, f"{collective} of {ranks} ranks" if chunks > 1 else f"{collective} of {dtype}")

    def and_of(self, nbytes: int, of: str) -> Unit:
        """Multiples of both."""
        both = lcm(self.nbytes, nbytes)
        return self if both == self.nbytes else Unit(both, of)

    def whole(self, asked: int) -> int:
        """The size that runs where `asked` is asked for; nothing stays nothing."""
        return max(asked // self.nbytes, min(asked, 1)) * self.nbytes

    def fit(self, ascending: Iterable[int]) -> Iterator[tuple[int, Resized | None]]:
        """The sizes that run, without repetitions, each with those that became it."""
        for ran, same in groupby(ascending, self.whole):
            asked = tuple(dict.fromkeys(size for size in same if size != ran))
            yield ran, Resized(asked, ran, *self) if asked else None
