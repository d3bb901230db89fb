"""Device tensors: data placed on the cubes of one SIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import checked, fits, refused
from ahbm.errors import UnsupportedError


@dataclass(frozen=True)
class DPPolicy:
    """The spread of a tensor inside a SIP.

    `cube="row_wise"` cuts the first axis into equal parts, one per cube; with `num_cubes=1` the tensor lives on cube 0.
    Of a cube's PEs, the first holds the part. Raises UnsupportedError (AHBM-U120) for every other combination,
    ConfigError (AHBM-C129) for values of other types.
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
                ("cube", self.cube, self.cube == "row_wise" or (self.cube == "replicate" and self.num_cubes == 1)),
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
                hint='use DPPolicy(cube="row_wise"), on all cubes or with num_cubes=1',
            )

    @checked
    def cubes(self, available: int) -> int:
        """Cubes that hold a part on a SIP of `available` cubes.

        Raises UnsupportedError (AHBM-U121) unless that is one cube or all of them.
        """
        cubes = self.num_cubes or available
        if cubes not in (1, available):
            raise UnsupportedError(
                "AHBM-U121",
                f"a tensor on {cubes} of {available} cubes is not supported",
                hint="place it on all cubes, or on one with num_cubes=1",
            )
        return cubes


@dataclass(frozen=True)
class ShardSpec:
    """The place of one part of a tensor."""

    sip: int
    cube: int
    pe: int
    offset_bytes: int
    """First byte in the whole tensor, C order."""
    nbytes: int


class DeviceTensor:
    """A tensor whose first axis is cut into equal parts, one per cube of its SIP."""

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
        return tuple(ShardSpec(self.sip, cube, 0, cube * size, size) for cube in range(len(self.tiles)))

    def numpy(self) -> NDArray[Any]:
        """The whole tensor as an array that shares its memory."""
        return self.tiles.reshape(self.shape)

    def __repr__(self) -> str:
        return f"DeviceTensor(shape={self.shape}, dtype={self.dtype}, cubes={len(self.tiles)}, sip={self.sip})"
