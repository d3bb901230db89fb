"""All-to-all with chunks of any sizes, on the collective that has equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import DistributedError


@dataclass(frozen=True, eq=False)
class Exchange:
    """One rank's side."""

    source: Any
    """The data it sends, a flat array or `Hollow`: `sends[j]` elements for rank j, one after the other."""
    target: Any
    """The data it receives, likewise: `receives[j]` elements from rank j."""
    sends: tuple[int, ...]
    receives: tuple[int, ...]

    @staticmethod
    def longest(sides: Sequence[Exchange]) -> int:
        """Elements of the longest chunk that any side sends."""
        return max(max(side.sends) for side in sides)

    @staticmethod
    def pad(sides: Sequence[Exchange], label: str) -> list[NDArray[Any]]:
        """Per rank, a flat array of equal chunks, each as long as the longest of all.

        Raises DistributedError (AHBM-X110) where one rank sends another number of elements than the other receives.
        """
        for i, side in enumerate(sides):
            for j, peer in enumerate(sides):
                if side.sends[j] != peer.receives[i]:
                    raise DistributedError(
                        "AHBM-X110",
                        f"{label}: rank {i} of the group sends {side.sends[j]} elements to rank {j}, "
                        f"which receives {peer.receives[i]}",
                        hint="input_split_sizes[j] of rank i must be output_split_sizes[i] of rank j",
                    )
        longest = Exchange.longest(sides)
        return [side._padded(longest) for side in sides]

    def _padded(self, longest: int) -> NDArray[Any]:
        if min(self.sends) == longest:
            whole: NDArray[Any] = self.source.copy()
            return whole
        out = np.zeros((len(self.sends), longest), self.source.dtype)
        start = 0
        for chunk, size in zip(out, self.sends, strict=True):
            chunk[:size] = self.source[start : start + size]
            start += size
        return out.reshape(-1)

    def unpad(self, result: NDArray[Any]) -> None:
        """Takes a padded result to `target`."""
        start = 0
        for chunk, size in zip(result.reshape(len(self.receives), -1), self.receives, strict=True):
            self.target[start : start + size] = chunk[:size]
            start += size
