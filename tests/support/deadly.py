"""A call that ends its process at some of its items; in a module, for processes import it."""

from __future__ import annotations

import os
from collections.abc import Sequence

BAD = frozenset({7})


def squares(items: Sequence[int]) -> tuple[list[int], float]:
    """The squares of the items."""
    if BAD & set(items):
        os._exit(3)
    return [item * item for item in items], 0.0
