"""`ahbm.tensor`: places data on the SIP of the calling rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

import ahbm.distributed as dist
from ahbm.base.arguments import checked, refused, whole
from ahbm.base.placement import CUTS, DeviceTensor, DPPolicy
from ahbm.config.topology import load_machine
from ahbm.errors import DataError


@checked
def tensor(data: ArrayLike, dp: DPPolicy, *, cubes: int | None = None, sip: int | None = None) -> DeviceTensor:
    """Places a copy of `data` on one SIP.

    `cubes` is the number of cubes of a SIP and `sip` the rank; by default both are those of the calling rank's process
    group, or of the default machine and SIP 0 outside of one. The axis that `dp` cuts must be a multiple of the
    cubes used.

    Raises DataError (AHBM-V110) for a shape that cannot be cut, UnsupportedError (AHBM-U121), ConfigError (AHBM-C129).
    """
    try:
        array = np.array(data, order="C")
    except (ValueError, RecursionError) as error:  # rows of unequal lengths, a list that is in itself
        raise refused("data", "an array, or a list of rows of equal lengths", data) from error
    if cubes is None or sip is None:
        here = _here()
        cubes, sip = cubes if cubes is not None else here[0], sip if sip is not None else here[1]
    used = dp.cubes(whole("cubes", cubes, 1, 2**32 - 1))
    axis = CUTS.get(dp.cube, 0) if array.ndim > 1 else 0
    if array.ndim == 0 or array.shape[axis] % used:
        raise DataError(
            "AHBM-V110",
            f"a tensor of shape {array.shape} cannot be cut {dp.cube.replace('_', '-')} into {used} equal parts",
            hint=f"make its {'last' if axis else 'first'} axis a multiple of {used}, or place it on one cube with "
            "num_cubes=1",
        )
    tiles = np.stack(np.split(array, used, axis=axis)) if axis else array
    return DeviceTensor(tiles.reshape(used, array.size // used), array.shape, dp, sip)


def _here() -> tuple[int, int]:
    """Cubes per SIP and rank of the calling thread."""
    if dist.is_initialized():
        return dist.cubes_per_rank(), dist.get_rank()
    return load_machine().cubes, 0
