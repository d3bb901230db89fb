"""Zeros of both signs in reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ahbm.distributed as dist
from ahbm import spawn


@pytest.mark.parametrize("algorithm", ["ring_allreduce", "recursive_doubling_allreduce"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_all_ranks_get_the_same_sign_of_zero(dtype: Any, algorithm: str) -> None:
    """IEEE 754-2019: `maximum` of both zeros is +0, `minimum` is -0."""

    def worker(rank: int) -> object:
        dist.init_process_group(backend="ahbm")
        signs = []
        for op in ("min", "max"):
            x = np.array([0.0, -0.0] * 20 if rank else [-0.0, 0.0] * 20, dtype)
            dist.all_reduce(x, op=op)
            signs.append(set(np.signbit(x).tolist()))
        return signs

    assert spawn(worker, topology="npu_ring_8", algorithm=algorithm) == [[{True}, {False}]] * 8
