"""`ahbm.distributed`: every call against NumPy, on small machines."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm import spawn
from ahbm.errors import ConfigError, DataError, DistributedError

SMALL = {
    "system.sips.count": 3,
    "system.sips.topology": "ring_1d",
    "sip.cube_mesh.w": 2,
    "sip.cube_mesh.h": 2,
    "cube.pe_layout.corners": 1,
    "cube.pe_layout.pe_per_corner": 1,
}


def run(worker: Any, ranks: int = 3, **kw: Any) -> list[Any]:
    def main(rank: int) -> object:
        dist.init_process_group(backend="ahbm")
        return worker(rank)

    return spawn(main, overrides={**SMALL, "system.sips.count": ranks}, **kw)


def values(rank: int, count: int, dtype: Any = np.float32) -> Any:
    return (np.arange(count) % 7 + rank + 1).astype(dtype)


DTYPES = [
    np.float16,
    ml_dtypes.bfloat16,
    np.float32,
    np.float64,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduce_of_every_dtype(dtype: Any) -> None:
    want = values(0, 10, dtype) + values(1, 10, dtype) + values(2, 10, dtype)

    def worker(rank: int) -> None:
        x = values(rank, 10, dtype)
        dist.all_reduce(x)
        np.testing.assert_array_equal(x, want)

    run(worker)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_floats_of_8_bits(dtype: Any) -> None:
    given = [np.array([1, -2, 0.5, r, 0.25 * r, 2**r, 0.0]).astype(dtype) for r in range(3)]

    def worker(rank: int) -> None:
        for op, want in {"sum": [3, -6, 1.5, 3, 0.75, 7, 0], "max": [1, -2, 0.5, 2, 0.5, 4, 0]}.items():
            x = given[rank].copy()
            dist.all_reduce(x, op)
            assert x.dtype == dtype and x.astype(float).tolist() == want
        y = Tensor(given[rank].copy(), f"torch.{np.dtype(dtype).name}")
        dist.all_reduce(y)
        assert y.array.astype(float).tolist() == [3, -6, 1.5, 3, 0.75, 7, 0]

    run(worker)


@pytest.mark.parametrize(
    ("op", "reduction"),
    [("sum", np.add), (dist.ReduceOp.PRODUCT, np.multiply), ("MIN", np.minimum), (dist.ReduceOp.MAX, np.maximum)],
)
def test_all_reduce_of_every_op(op: Any, reduction: Any) -> None:
    want = reduction.reduce([values(rank, 9) for rank in range(3)])

    def worker(rank: int) -> None:
        x = values(rank, 9)
        dist.all_reduce(x, op)
        np.testing.assert_array_equal(x, want)

    run(worker)


def test_average_divides_by_the_ranks() -> None:
    def worker(rank: int) -> None:
        x = np.full(5, 3.0 * rank, np.float32)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        np.testing.assert_array_equal(x, 3.0)

    run(worker)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3, 5), (1000,)])
def test_all_reduce_of_every_shape(shape: tuple[int, ...]) -> None:
    def worker(rank: int) -> None:
        x = np.full(shape, rank + 1, np.float32)
        dist.all_reduce(x)
        np.testing.assert_array_equal(x, np.full(shape, 6))

    run(worker)


def test_arrays_that_are_not_contiguous_are_written_in_place() -> None:
    def worker(rank: int) -> None:
        base = np.zeros((6, 8), np.float32)
        x = base.T[::2, 1:]
        x[...] = rank + 1
        dist.all_reduce(x)
        assert (x == 6).all() and base.sum() == 6 * x.size
        y = base[::-1]
        dist.broadcast(y, 2)

    run(worker)


@pytest.mark.parametrize("root", [0, 2])
def test_broadcast_and_reduce(root: int) -> None:
    def worker(rank: int) -> None:
        x = values(rank, 11)
        dist.broadcast(x, root)
        np.testing.assert_array_equal(x, values(root, 11))
        y = values(rank, 11)
        dist.reduce(y, root)
        want = sum(values(r, 11) for r in range(3)) if rank == root else values(rank, 11)
        np.testing.assert_array_equal(y, want)

    run(worker)


def test_all_gather() -> None:
    def worker(rank: int) -> None:
        out = [np.zeros((2, 5), np.float32)[:, ::2] for _ in range(3)]
        dist.all_gather(out, values(rank, 6).reshape(2, 3))
        for r in range(3):
            np.testing.assert_array_equal(out[r], values(r, 6).reshape(2, 3))
        flat = np.zeros((3, 6), np.float32)
        dist.all_gather_into_tensor(flat, values(rank, 6))
        np.testing.assert_array_equal(flat, [values(r, 6) for r in range(3)])

    run(worker)


def test_reduce_scatter() -> None:
    def worker(rank: int) -> None:
        ins = [values(rank + j, 4) for j in range(3)]
        want = sum(values(r + rank, 4) for r in range(3))
        out = np.zeros(4, np.float32)
        dist.reduce_scatter(out, ins)
        np.testing.assert_array_equal(out, want)
        whole = np.concatenate(ins)
        kept = whole.copy()
        dist.reduce_scatter_tensor(out, whole, "max")
        np.testing.assert_array_equal(out, np.max([values(r + rank, 4) for r in range(3)], axis=0))
        np.testing.assert_array_equal(whole, kept)

    run(worker)


@pytest.mark.parametrize("root", [0, 1])
def test_gather_and_scatter(root: int) -> None:
    def worker(rank: int) -> None:
        outs = [np.zeros(5, np.float32) for _ in range(3)] if rank == root else None
        dist.gather(values(rank, 5), outs, dst=root)
        if outs is not None:
            np.testing.assert_array_equal(outs, [values(r, 5) for r in range(3)])
        x = np.zeros(5, np.float32)
        dist.scatter(x, [values(r, 5) for r in range(3)] if rank == root else None, src=root)
        np.testing.assert_array_equal(x, values(rank, 5))

    run(worker)


def test_all_to_all() -> None:
    def worker(rank: int) -> None:
        ins = [np.full(4, 10 * rank + j, np.int32) for j in range(3)]
        outs = [np.zeros(4, np.int32) for _ in range(3)]
        dist.all_to_all(outs, ins)
        want = [np.full(4, 10 * j + rank) for j in range(3)]
        np.testing.assert_array_equal(outs, want)
        single = np.concatenate(ins)
        dist.all_to_all_single(single, single)
        np.testing.assert_array_equal(single, np.concatenate(want))
        # Rank i sends i + j rows of two to rank j.
        sends = [rank + j for j in range(3)]
        rows = np.repeat([[100 * rank + j, 7] for j in range(3)], sends, axis=0).astype(np.int32)
        got = np.zeros_like(rows)
        dist.all_to_all_single(got, rows, sends, sends)
        np.testing.assert_array_equal(got, np.repeat([[100 * j + rank, 7] for j in range(3)], sends, axis=0))
        with pytest.raises(DistributedError, match="do not add up"):
            dist.all_to_all_single(single, single, [6, 3])
        with pytest.raises(DistributedError, match=r"AHBM-X130 .*output has 9 elements; .* input asks for 12"):
            dist.all_to_all_single(np.zeros(9, np.int32), single)

    run(worker)


def test_all_to_all_with_split_sizes_that_do_not_match() -> None:
    def worker(rank: int) -> None:
        x = np.zeros(12, np.int32)
        dist.all_to_all_single(x, x, [6, 3, 3], [4, 4, 4])

    with pytest.raises(DistributedError, match="rank 0 of the group sends 4 elements to rank 0, which receives 6"):
        run(worker)


def test_send_and_receive_in_order() -> None:
    def worker(rank: int) -> object:
        x = np.zeros(6, np.float32)
        if rank == 0:
            dist.send(values(1, 6), 1)
            dist.send(values(2, 6), 1)
            return None
        if rank == 1:
            assert dist.recv(x, 0) == 0
            np.testing.assert_array_equal(x, values(1, 6))
            dist.recv(x, 0)
            np.testing.assert_array_equal(x, values(2, 6))
        return dist.simulated_time()

    _, one, two = run(worker)
    assert one > 0 and two == 0


def test_tags_choose_the_message() -> None:
    def worker(rank: int) -> None:
        if rank == 0:
            works = [dist.isend(np.full(2, tag, np.int32), 1, tag=tag) for tag in (5, 6)]
            assert all(work.wait() for work in works)
        elif rank == 1:
            x = np.zeros(2, np.int32)
            for tag in (6, 5):
                dist.recv(x, 0, tag=tag)
                assert (x == tag).all()

    run(worker)


def test_receive_from_any_source_takes_the_earliest_sender() -> None:
    def worker(rank: int) -> object:
        x = np.zeros(3, np.float32)
        if rank == 0:
            return [dist.recv(x), dist.recv(x)]
        if rank == 1:
            pair = dist.new_group([1, 2])
            del pair
        else:
            dist.new_group([1, 2])
        dist.send(values(rank, 3), 0)
        return None

    def all_call(rank: int) -> object:
        if rank == 0:
            dist.new_group([1, 2])
        return worker(rank)

    for _ in range(20):
        assert run(all_call)[0] == [1, 2]


def test_a_ring_of_isend_and_irecv() -> None:
    def worker(rank: int) -> None:
        x = np.zeros(4, np.float32)
        works = [dist.isend(values(rank, 4), (rank + 1) % 3), dist.irecv(x, (rank - 1) % 3)]
        for work in works:
            work.wait()
        assert works[1].result() == (rank - 1) % 3
        np.testing.assert_array_equal(x, values((rank - 1) % 3, 4))

    run(worker)


def test_async_work() -> None:
    def worker(rank: int) -> None:
        x, y = values(rank, 8), values(rank, 8)
        first, second = dist.all_reduce(x, async_op=True), dist.broadcast(y, 1, async_op=True)
        assert first is not None and second is not None
        assert dist.simulated_time() == 0
        assert second.wait() and second.is_completed() and second.is_success() and second.exception() is None
        assert first.result() is x
        np.testing.assert_array_equal(x, sum(values(r, 8) for r in range(3)))
        np.testing.assert_array_equal(y, values(1, 8))

    run(worker)


def test_groups() -> None:
    def worker(rank: int) -> None:
        pair = dist.new_group([2, 0])
        assert dist.get_rank(pair) == {0: 0, 1: -1, 2: 1}[rank]
        assert dist.get_world_size(pair) == (-1 if rank == 1 else 2)
        x = values(rank, 5)
        if rank == 1:
            assert pair is dist.GroupMember.NON_GROUP_MEMBER
            with pytest.raises(DistributedError, match="no member"):
                dist.all_reduce(x, group=pair)
        else:
            dist.all_reduce(x, group=pair)
            np.testing.assert_array_equal(x, values(0, 5) + values(2, 5))
            dist.broadcast(x, 2, group=pair)
        dist.all_reduce(x, group=dist.group.WORLD)
        dist.barrier(dist.new_group())

    run(worker)


def test_clocks_start_together_and_advance_together() -> None:
    def worker(rank: int) -> list[float]:
        pair = dist.new_group([0, 1])
        x = np.ones(64, np.float32)
        if rank < 2:
            dist.all_reduce(x, group=pair)
        early = dist.simulated_time()
        dist.barrier()
        late = dist.simulated_time()
        assert [record.collective for record in dist.stats()] == ["all_reduce", "barrier"][(rank == 2) :]
        last = dist.stats()[-1]
        assert last.start_ns + last.latency_ns == pytest.approx(late)
        return [early, late]

    first, second, third = run(worker)
    assert first == second and first[0] > 0
    assert third[0] == 0 and third[1] == first[1] > first[0]


def test_groups_overlap_in_simulated_time_when_async() -> None:
    def worker(rank: int) -> float:
        other = dist.new_group([0, 1, 2])
        x, y = np.ones(64, np.float32), np.ones(64, np.float32)
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, group=other, async_op=True)]
        for work in works:
            assert work is not None
            work.wait()
        first, second = dist.stats()
        assert first.start_ns == second.start_ns == 0
        return dist.simulated_time() - max(first.latency_ns, second.latency_ns)

    assert run(worker) == [0.0, 0.0, 0.0]


def test_init_and_destroy() -> None:
    def worker(rank: int) -> None:
        assert dist.is_initialized() and dist.get_backend() == "ahbm" and dist.get_world_size() == 3
        with pytest.raises(DistributedError, match="already"):
            dist.init_process_group()
        dist.barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        with pytest.raises(DistributedError, match="not initialised"):
            dist.barrier()
        dist.init_process_group("ahbm", timeout=30)
        assert dist.simulated_time() == 0
        x = values(rank, 4)
        dist.all_reduce(x)

    run(worker)


def test_one_rank_needs_no_spawn() -> None:
    assert dist.is_available() and not dist.is_initialized()
    dist.init_process_group(backend="ahbm", overrides={**SMALL, "system.sips.count": 1})
    try:
        x = values(0, 5)
        dist.all_reduce(x)
        np.testing.assert_array_equal(x, values(0, 5))
        work = dist.broadcast(x, 0, async_op=True)
        assert work is not None and work.wait()
        with pytest.raises(DistributedError, match="no rank can go on"):
            dist.recv(x)
        dist.barrier()
    finally:
        dist.destroy_process_group()


class Tensor:
    """What the library sees of a torch CPU tensor."""

    def __init__(self, array: Any, dtype: str) -> None:
        self.array, self.dtype = array, dtype

    def detach(self) -> Tensor:
        return self

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.array.view(dtype), np.dtype(dtype).name)

    def numpy(self) -> Any:
        if self.dtype in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


int16, int8 = np.int16, np.int8


def test_tensors_of_other_libraries() -> None:
    def worker(rank: int) -> None:
        x = Tensor(values(rank, 6), "torch.float32")
        dist.all_reduce(x)
        np.testing.assert_array_equal(x.array, sum(values(r, 6) for r in range(3)))
        bits = values(rank, 6, ml_dtypes.bfloat16)
        y = Tensor(bits, "torch.bfloat16")
        dist.all_gather_into_tensor(np.zeros(18, ml_dtypes.bfloat16), y)
        dist.broadcast(y, 2)
        np.testing.assert_array_equal(bits, values(2, 6, ml_dtypes.bfloat16))

    run(worker)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int32])
def test_device_tensors(dtype: Any) -> None:
    def worker(rank: int) -> list[dist.CallRecord]:
        x = ahbm.tensor(np.full((8, 5), rank + 1, dtype), dp=ahbm.DPPolicy(cube="row_wise"))
        assert [shard.sip for shard in x.shards] == [rank] * 4
        work = dist.all_reduce(x, async_op=True)
        assert work is not None and work.result() is x
        np.testing.assert_array_equal(x.numpy(), np.full((8, 5), 24))
        y = ahbm.tensor(np.full((3, 2), rank + 1, dtype), dp=ahbm.DPPolicy(num_cubes=1))
        dist.all_reduce(y, "max")
        np.testing.assert_array_equal(y.numpy(), np.full((3, 2), 3))
        return dist.stats()

    tiles, single = run(worker)[0]
    assert (tiles.ranks, tiles.bytes) == (12, 10 * np.dtype(dtype).itemsize)
    assert (single.ranks, single.bytes) == (3, 6 * np.dtype(dtype).itemsize)


@pytest.mark.parametrize("cut", ["row_wise", "column_wise"])
@pytest.mark.parametrize("cubes", [1, 2, 4, 8, 12, None])
def test_tensors_are_cut_both_ways_over_some_of_the_cubes(cut: str, cubes: int | None) -> None:
    used, axis = cubes or 16, 0 if cut == "row_wise" else 1
    whole = [np.arange(48 * 96, dtype=np.float32).reshape(48, 96) % 7 + rank for rank in range(2)]
    want = sum(part for array in whole for part in np.split(array, used, axis=axis))

    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm")
        x = ahbm.tensor(whole[rank], ahbm.DPPolicy(cube=cut, num_cubes=cubes))
        assert np.array_equal(x.numpy(), whole[rank])
        places = [(shard.cube, shard.offset_bytes) for shard in x.shards]
        assert places == [(n, 4 * n * (48 // used * 96 if axis == 0 else 96 // used)) for n in range(used)]
        dist.all_reduce(x)
        assert all(np.array_equal(part, want) for part in np.split(x.numpy(), used, axis=axis))

    ahbm.spawn(worker)


def test_device_and_host_tensors_do_not_mix() -> None:
    def worker(rank: int) -> None:
        x: Any = np.ones((8, 5), np.float32)
        dist.all_reduce(ahbm.tensor(x, dp=ahbm.DPPolicy()) if rank else x)

    with pytest.raises(DistributedError, match="disagree on"):
        run(worker)


def test_ranks_beyond_the_sips_are_pes() -> None:
    def worker(rank: int) -> int:
        x = values(rank, 7)
        dist.all_reduce(x)
        np.testing.assert_array_equal(x, sum(values(r, 7) for r in range(5)))
        if rank in (1, 4):
            y = np.zeros(3, np.float32)
            dist.send(values(1, 3), 4) if rank == 1 else dist.recv(y, 1)
        return dist.get_world_size()

    def main(rank: int) -> int:
        dist.init_process_group()
        return worker(rank)

    assert spawn(main, overrides={**SMALL, "world_size": 5, "algorithm": "ring_allreduce"}) == [5] * 5


def test_simulated_times_do_not_depend_on_threads() -> None:
    def worker(rank: int) -> list[dist.CallRecord]:
        pair, ring = dist.new_group([0, 1]), dist.new_group()
        delays = random.Random()
        for _ in range(5):
            time.sleep(delays.random() / 200)
            x = values(rank, 33)
            works = [dist.all_reduce(x, group=ring, async_op=True)]
            works += [dist.isend(values(rank, 9), (rank + 1) % 3), dist.irecv(np.zeros(9, np.float32), (rank - 1) % 3)]
            if rank < 2:
                works.append(dist.all_gather_into_tensor(np.zeros(8, np.float32), x[:4], group=pair, async_op=True))
            time.sleep(delays.random() / 200)
            for work in works:
                assert work is not None and work.wait()
            dist.broadcast(x, 1)
        assert dist.simulated_time() > 0
        return dist.stats()

    assert run(worker) == run(worker)


LOSES = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return ()


def kernel(t_ptr, *sip, tl):
    pass
"""


def lossy(folder: Path, check: str | None = None, group: list[int] | None = None) -> list[Any]:
    (folder / "loses.py").write_text(LOSES, encoding="utf-8")

    def worker(rank: int) -> list[float]:
        dist.init_process_group(backend="ahbm", algorithm=str(folder / "loses.py"), check=check)
        members = dist.new_group(group) if group else None
        x = np.array([1.0, 2.0], np.float32)
        if group is None or rank in group:
            dist.all_reduce(x, group=members)
        return list(x)

    return spawn(worker, overrides=SMALL)


def test_a_lost_contribution_is_an_error_at_the_first_call(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        lossy(tmp_path)
    assert caught.value.code == "AHBM-V401" and "only rank 0 arrived" in caught.value.message
    with pytest.raises(DataError) as caught:
        lossy(tmp_path, group=[0, 2])
    assert "rank 2 missing" in caught.value.message and "rank 1" not in caught.value.message


NARROWS = """
COLLECTIVE = "all_gather"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (world_size, n_elem, dtype)


def kernel(t_ptr, world, n, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    size = n * tl.itemsize(dtype)
    own = tl.load(t_ptr + sip_rank * size, shape=(n,), dtype=dtype)
    for step in range(1, world):
        tl.send(dir=f"sip{(sip_rank + step) % world}", src=tl.cast(own, OTHER))
        other = (sip_rank - step) % world
        tl.store(t_ptr + other * size, tl.cast(tl.recv(dir=f"sip{other}", shape=(n,), dtype=OTHER), dtype))
"""


def test_a_cast_that_loses_bits_is_an_error_at_the_first_call(tmp_path: Path) -> None:
    def worker(rank: int) -> list[float]:
        dist.init_process_group(backend="ahbm")
        result = np.zeros(6, np.float32)
        dist.all_gather_into_tensor(result, np.array([1.0 + rank, 2.0], np.float32))
        return result.tolist()

    def gathered(other: str) -> list[list[float]]:
        (tmp_path / "narrows.py").write_text(NARROWS.replace("OTHER", repr(other)), encoding="utf-8")
        return spawn(worker, overrides={**SMALL, "collectives.all_gather": str(tmp_path / "narrows.py")})

    for other in ("f16", "bf16"):
        with pytest.raises(DataError, match=r"AHBM-V401.* narrower than f32(?s:.)*narrows\.py:13"):
            gathered(other)
    assert gathered("f64") == [[1.0, 2.0, 2.0, 2.0, 3.0, 2.0]] * 3


def test_a_barrier_that_holds_nobody_is_an_error_at_the_first_call(tmp_path: Path) -> None:
    (tmp_path / "loses.py").write_text('COLLECTIVE = "barrier"\n' + LOSES, encoding="utf-8")

    def worker() -> None:
        dist.init_process_group(backend="ahbm")
        dist.barrier()

    with pytest.raises(DataError, match="AHBM-V415"):
        spawn(worker, overrides={**SMALL, "collectives.barrier": str(tmp_path / "loses.py")})


def test_the_check_of_first_calls_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lossy(tmp_path, "none") == [[1.0, 2.0]] * 3
    monkeypatch.setenv("AHBM_CHECK", "race")
    assert lossy(tmp_path) == [[1.0, 2.0]] * 3
    with pytest.raises(DataError):
        lossy(tmp_path, "all")
    with pytest.raises(ConfigError) as caught:
        lossy(tmp_path, "nosuch")
    assert caught.value.code == "AHBM-C170"
