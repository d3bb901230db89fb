"""8-bit floats: every pair of numbers, as torch adds, multiplies and converts them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist

import ahbm.torch

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
KINDS = (torch.float8_e4m3fn, torch.float8_e5m2)
BITS = torch.arange(256, dtype=torch.uint8)


def pairs(kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every number with every number, 65,536 of them."""
    return BITS.repeat_interleave(256).view(kind), BITS.repeat(256).view(kind)


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal bits, but that all NaN are alike."""
    nan = want.float().isnan()
    assert torch.equal(got.float().isnan(), nan)
    assert torch.equal(got.view(torch.uint8)[~nan], want.view(torch.uint8)[~nan])


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair(kind: torch.dtype) -> None:
    def worker(rank: int) -> dict[str, torch.Tensor]:
        dist.init_process_group("ahbm")
        results = {}
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
            results[op.name] = x = pairs(kind)[rank].clone()
            dist.all_reduce(x, op)
        return results

    a, b = (x.float() for x in pairs(kind))
    for got in ahbm.torch.spawn(worker, world_size=2, overrides=SMALL):
        assert_same(got["SUM"], (a + b).to(kind))
        assert_same(got["PRODUCT"], (a * b).to(kind))
        assert_same(got["AVG"], ((a + b).to(kind).float() / 2).to(kind))
        for name, op in (("MIN", torch.minimum), ("MAX", torch.maximum)):  # of two zeros either
            assert torch.equal(got[name].float().nan_to_num(1e9), op(a, b).nan_to_num(1e9))


def test_what_is_too_large() -> None:
    """The largest number in e4m3, which has no infinity, and infinity in e5m2."""

    def worker(rank: int) -> list[list[float]]:
        dist.init_process_group("ahbm")
        e4m3 = torch.tensor([448.0, 448.0, -448.0, 448.0]).to(KINDS[0])
        e5m2 = torch.tensor([57344.0, -57344.0, 57344.0, float("inf")]).to(KINDS[1])
        if rank:
            e4m3 = torch.tensor([16.0, 448.0, -448.0, -448.0]).to(KINDS[0])
            e5m2 = torch.tensor([4096.0, -8192.0, 3584.0, float("-inf")]).to(KINDS[1])
        for x in (e4m3, e5m2):
            dist.all_reduce(x)
        return [e4m3.tolist(), e5m2.tolist()]

    (e4m3, e5m2), _ = ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)
    assert e4m3 == [448, 448, -448, 0]
    assert e5m2[:3] == [float("inf"), float("-inf"), 57344] and e5m2[3] != e5m2[3]


@pytest.mark.parametrize("kind", KINDS)
def test_halves_lose_nothing_that_shows(kind: torch.dtype) -> None:
    """NCCL's kernels compute in f16, and apart from what is too large the result is the same."""
    a, b = pairs(kind)
    for op in (torch.add, torch.mul):
        wide, half = op(a.float(), b.float()).to(kind), op(a.half(), b.half()).to(kind)
        assert_same(half, wide)


def test_no_operators_of_bits() -> None:
    def worker() -> None:
        dist.init_process_group("ahbm")
        with pytest.raises(NotImplementedError, match="AHBM-U151"):
            dist.all_reduce(torch.ones(4).to(KINDS[0]), dist.ReduceOp.BXOR)

    ahbm.torch.spawn(worker, world_size=2, overrides=SMALL)


def test_accumulation_in_f32() -> None:
    def worker(rank: int) -> torch.Tensor:
        dist.init_process_group("ahbm")
        x = torch.full((8,), 1.0 if rank == 0 else 0.0625).to(KINDS[1])
        dist.all_reduce(x)
        return x.float()

    def named(algorithms: object, request: object) -> str:
        return "ring_allreduce"

    wide = ahbm.torch.spawn(worker, world_size=8, overrides=SMALL, selector=named, accumulate="f32")
    assert torch.equal(wide[0], torch.full((8,), 1.4375).to(KINDS[1]).float())
