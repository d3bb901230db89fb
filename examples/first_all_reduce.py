"""The first all-reduce: every rank gives an array, every rank gets the sum, and the time is simulated."""

import numpy as np

import ahbm
import ahbm.distributed as dist


def worker(rank: int) -> float:
    dist.init_process_group(backend="ahbm")
    x = np.full(1000, rank + 1, dtype=np.float32)
    dist.all_reduce(x)
    ranks = dist.get_world_size()
    assert (x == ranks * (ranks + 1) / 2).all()
    return dist.simulated_time()


# Eight NPUs in a ring; `ahbm topology -t npu_ring_8` draws the machine.
times = ahbm.spawn(worker, topology="npu_ring_8")
print(f"{len(times)} ranks, done after {max(times):,.1f} ns (simulated)")
