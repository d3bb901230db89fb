"""`ahbm.distributed`: what its functions are given, by code written for torch and as tensors of devices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm import spawn
from ahbm.errors import DistributedError, UnsupportedError

SMALL = {"system.sips.count": 3, "system.sips.topology": "ring_1d", "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 2}


def test_arguments_of_torch_must_agree_with_the_world() -> None:
    def worker(rank: int) -> None:
        with pytest.raises(DistributedError, match=r"AHBM-X104 .*world_size=4, but this world has 3 ranks") as size:
            dist.init_process_group("ahbm", world_size=4, rank=rank)
        assert "nprocs=4" in str(size.value) and '"system.sips.count": 4' in str(size.value)
        with pytest.raises(DistributedError, match=rf"AHBM-X131 .*this is rank {rank} of 3"):
            dist.init_process_group("ahbm", world_size=3, rank=(rank + 1) % 3)
        dist.init_process_group("ahbm", init_method="env://", world_size=3, rank=rank, timeout=timedelta(seconds=60))
        x = np.full(4, rank + 1, np.float32)
        dist.all_reduce(x)
        assert x.tolist() == [6, 6, 6, 6]

    spawn(worker, overrides=SMALL)


def test_device_tensors_are_tiles_to_all_reduce_by_a_kernel_and_host_arrays_to_the_rest() -> None:
    def tensor(rank: int, rows: int = 8) -> Any:
        return ahbm.tensor(np.full((rows, 2), rank + 1, np.float16), dp=ahbm.DPPolicy(cube="row_wise"))

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        out = tensor(0, 24)
        dist.all_gather_into_tensor(out, tensor(rank))
        assert out.numpy()[:, 0].tolist() == [1] * 8 + [2] * 8 + [3] * 8
        root = tensor(rank)
        dist.broadcast(root, 2)
        assert (root.numpy() == 3).all()
        tiles = tensor(rank)
        dist.all_reduce(tiles)
        assert (tiles.numpy() == 4 * (1 + 2 + 3)).all()

    spawn(worker, overrides=SMALL)
    with pytest.raises(UnsupportedError, match="AHBM-U111 all_gather"):
        ahbm.run("all_gather", None, "npu_ring_8", placement=ahbm.DPPolicy(cube="row_wise"))
    ring = {"algorithms.s.synth.method": "ring"}
    with pytest.raises(UnsupportedError, match="AHBM-U111 the plan s"):
        ahbm.run("all_reduce", "s", "npu_ring_8", placement=ahbm.DPPolicy(cube="row_wise"), overrides=ring)
