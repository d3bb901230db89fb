"""The quickest of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Name = TypeVar("_Name")


def quickest(costs: Mapping[_Name, float]) -> _Name | None:
    """The name with the least cost, the first among equals; None of none."""
    return min(costs, key=lambda name: costs[name], default=None)
