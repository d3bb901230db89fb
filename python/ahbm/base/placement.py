"""Device tensors: data placed on the cubes of one SIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import checked, fits, refused
from ahbm.errors import UnsupportedError

CUTS = {"row_wise": 0, "column_wise": -1}
"""Ways of cutting a tensor over cubes, and the axis that each cuts."""


@dataclass(frozen=True)
class DPPolicy:
    """The spread of a tensor inside a SIP.

    `cube="row_wise"` cuts the first axis into equal parts, one per cube, and `"column_wise"` the last; with
    `num_cubes` the first cubes of a SIP hold them, with `num_cubes=1` cube 0 the whole tensor. Of a cube's PEs, the
    first holds the part. Raises UnsupportedError (AHBM-U120) for every other combination, ConfigError (AHBM-C129) for
    values of other types.
    """

    cube: str = "row_wise"
    pe: str = "replicate"
    num_cubes: int | None = None
    """Cubes that take part; None is all of a SIP."""
    num_pes: int | None = None
    """PEs per cube that take part; None is one."""

    def __post_init__(self) -> None:
        for name, annotation in type(self).__annotations__.items():
            if not fits(getattr(self, name), annotation):
                raise refused(name, "a text" if annotation == "str" else "an integer or None", getattr(self, name))
        wrong = [
            f"{name}={value!r}"
            for name, value, good in (
                ("cube", self.cube, self.cube in CUTS or (self.cube == "replicate" and self.num_cubes == 1)),
                ("pe", self.pe, self.pe in ("replicate", "row_wise", "column_wise")),
                ("num_cubes", self.num_cubes, self.num_cubes is None or self.num_cubes >= 1),
                ("num_pes", self.num_pes, self.num_pes in (None, 1)),
            )
            if not good
        ]
        if wrong:
            raise UnsupportedError(
                "AHBM-U120",
                f"DPPolicy({', '.join(wrong)}) is not supported",
                hint='use DPPolicy(cube="row_wise") or "column_wise"; on one cube, "replicate" too',
            )

    @checked
    def cubes(self, available: int) -> int:
        """Cubes that hold a part on a SIP of `available` cubes.

        Raises UnsupportedError (AHBM-U121) for more than there are.
        """
        cubes = self.num_cubes or available
        if cubes > available:
            raise UnsupportedError(
                "AHBM-U121", f"a tensor on {cubes} cubes of {available}", hint=f"num_cubes of at most {available}"
            )
        return cubes


class ShardSpec(NamedTuple):
    """The place of one part of a tensor."""

    sip: int
    cube: int
    pe: int
    offset_bytes: int
    """First byte in the whole tensor, C order."""
    nbytes: int
    """Bytes of the part, which lie apart in the whole tensor where several rows are cut column-wise."""


class DeviceTensor:
    """A tensor of which one axis is cut into equal parts, one per cube of its SIP."""

    def __init__(self, tiles: NDArray[Any], shape: tuple[int, ...], dp: DPPolicy, sip: int = 0) -> None:
        self.tiles = tiles
        """Shape (cubes, elements of a tile), contiguous: one row per cube."""
        self.shape = shape
        """Shape of the whole tensor."""
        self.dp = dp
        """Its placement."""
        self.sip = sip
        """The SIP that holds it: its rank."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.tiles.dtype

    @property
    def shards(self) -> tuple[ShardSpec, ...]:
        """The places of the parts, in cube order."""
        size = self.tiles.shape[1] * self.tiles.itemsize
        part = self.part
        apart = size if self.axis == 0 else part[-1] * self.tiles.itemsize
        return tuple(ShardSpec(self.sip, cube, 0, cube * apart, size) for cube in range(len(self.tiles)))

    @property
    def axis(self) -> int:
        """The axis that is cut: 0, or -1 for the last of several."""
        return CUTS.get(self.dp.cube, 0) if len(self.shape) > 1 else 0

    @property
    def part(self) -> tuple[int, ...]:
        """Shape of a cube's part."""
        shape = list(self.shape)
        shape[self.axis] //= len(self.tiles)
        return tuple(shape)

    def numpy(self) -> NDArray[Any]:
        """The whole tensor; an array that shares its memory unless several rows are cut column-wise."""
        if self.axis == 0:
            return self.tiles.reshape(self.shape)
        return np.concatenate([tile.reshape(self.part) for tile in self.tiles], axis=self.axis)

    def __repr__(self) -> str:
        return f"DeviceTensor(shape={self.shape}, dtype={self.dtype}, cubes={len(self.tiles)}, sip={self.sip})"
