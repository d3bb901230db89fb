"""Whatever a user gets wrong: a typed error with a stable code, both sides and a hint, and a process that goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.errors import (
    AhbmError,
    BudgetError,
    ConfigError,
    DeadlockError,
    DistributedError,
    InterruptedRun,
    KernelError,
    LintError,
    RankError,
    TopologyError,
)

RING = {
    "system.sips.count": 3,
    "system.sips.topology": "ring_1d",
    "sip.cube_mesh.w": 1,
    "sip.cube_mesh.h": 1,
    "cube.pe_layout.corners": 1,
    "cube.pe_layout.pe_per_corner": 1,
}

HEAD = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)

def kernel(t_ptr, n, ranks, dtype, rank, kind, w, h, *, tl):
    x = tl.load(t_ptr, shape=(n,), dtype=dtype)
"""


@pytest.fixture(autouse=True)
def goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever happened, the next run of this process is right."""
    monkeypatch.chdir(tmp_path)
    yield

    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm", algorithm="ring_allreduce")
        x = np.full(5, rank, np.float32)
        dist.all_reduce(x)
        assert (x == 3).all()

    ahbm.spawn(worker, overrides=RING)
    assert not dist.is_initialized()


def fails(kind: type[AhbmError], run: Callable[[], object], *, code: str, says: str, sites: int = 0) -> AhbmError:
    with pytest.raises(kind, match=says) as caught:
        run()
    error = caught.value
    assert error.code == code and error.hint and len(error.sites) >= sites, str(error)
    found = json.loads(json.dumps(error.to_json()))
    assert found["exit_code"] == kind.exit_code and found["findings"][0]["code"] == code
    return error


def spawned(worker: Callable[..., object], **overrides: object) -> Callable[[], object]:
    return lambda: ahbm.spawn(worker, overrides={**RING, **overrides})


def reduced(body: str, head: str = HEAD, elements: int = 8, **overrides: object) -> Callable[[], object]:
    """An all-reduce by a kernel with this body."""
    Path("bad.py").write_text(head + body)

    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm", algorithm="bad.py")
        dist.all_reduce(np.ones(elements, np.float16))

    return spawned(worker, **overrides)


# The configuration


def test_unknown_backend() -> None:
    error = fails(
        DistributedError,
        spawned(lambda: dist.init_process_group(backend="nccl")),
        code="AHBM-X101",
        says="unknown backend 'nccl'",
        sites=1,
    )
    assert isinstance(error, ValueError)
    with pytest.raises(ValueError, match="unknown backend"):
        dist.init_process_group("gloo")


def test_unknown_topology_name() -> None:
    fails(
        TopologyError,
        lambda: ahbm.spawn(print, topology="moebius"),
        code="AHBM-T101",
        says="unknown topology 'moebius'",
    )


def test_grid_that_is_no_square() -> None:
    run = spawned(print, **{"system.sips.topology": "torus_2d", "system.sips.count": 6})
    error = fails(TopologyError, run, code="AHBM-T007", says="6")
    assert "w" in str(error.hint)


def test_world_that_is_not_w_times_h() -> None:
    run = spawned(
        print, **{"system.sips.topology": "torus_2d", "system.sips.count": 6, "system.sips.w": 4, "system.sips.h": 2}
    )
    fails(TopologyError, run, code="AHBM-T007", says="6")


def test_unknown_key() -> None:
    fails(TopologyError, spawned(print, **{"system.sips.cout": 2}), code="AHBM-T003", says="cout")
    fails(ConfigError, spawned(print, **{"systme.sips": 2}), code="AHBM-C107", says="systme")


def test_slot_smaller_than_the_tile() -> None:
    body = "    tl.send(dir='global_E', src=x)\n    tl.recv(dir='global_W', shape=(n,), dtype=dtype)\n"
    error = fails(LintError, reduced(body, elements=4096, slot_size=4096), code="AHBM-L105", says="4096", sites=1)
    assert "bad.py:" in str(error)


# The kernel


def test_kernel_arity() -> None:
    error = fails(
        KernelError,
        reduced("    pass\n", HEAD.replace("ranks, dtype, rank", "ranks, rank")),
        code="AHBM-K111",
        says="takes 7 positional arguments, but gets 8",
        sites=2,
    )
    assert {site.origin for site in error.sites} == {"bad.py:2", "bad.py:5"}


def test_missing_symbols() -> None:
    fails(
        ConfigError, reduced("", "def kernel(tl):\n    pass\n"), code="AHBM-C112", says="no symbol kernel_args", sites=1
    )


def test_direction_without_a_neighbour() -> None:
    error = fails(LintError, reduced("    tl.send(dir='N', src=x)\n"), code="AHBM-L101", says="N", sites=1)
    assert "bad.py:7" in str(error)


def test_unknown_direction() -> None:
    fails(KernelError, reduced("    tl.send(dir='global_Q', src=x)\n"), code="AHBM-K208", says="global_Q", sites=1)


def test_kernel_that_reads_data() -> None:
    error = fails(KernelError, reduced("    if x.data[0] > 0:\n        pass\n"), code="AHBM-K202", says="data", sites=1)
    assert "bad.py:7" in str(error)


def test_kernel_that_raises() -> None:
    error = fails(KernelError, reduced("    [][rank]\n"), code="AHBM-K210", says="IndexError", sites=1)
    assert isinstance(error.__cause__, IndexError) and "bad.py:7" in str(error)


def test_kernel_that_never_receives() -> None:
    run = reduced("    for _ in range(6):\n        tl.send(dir='global_E', src=x)\n")
    with pytest.raises((LintError, DeadlockError)) as caught:
        run()
    assert caught.value.hint and "bad.py:8" in str(caught.value)


def test_kernel_in_which_everybody_waits() -> None:
    run = reduced("    y = tl.recv(dir='global_W', shape=(n,), dtype=dtype)\n    tl.send(dir='global_E', src=y)\n")
    error = fails(DeadlockError, run, code="AHBM-D101", says="rank|agent|wait|cycle", sites=2)
    assert "bad.py:7" in str(error) and "global_W" in str(error)


def test_kernel_that_recurses_for_ever() -> None:
    head = "def again(tl):\n    again(tl)\n" + HEAD
    error = fails(KernelError, reduced("    again(tl)\n", head), code="AHBM-K211", says="recurs", sites=1)
    assert "bad.py" in str(error)


def test_kernel_that_records_without_end() -> None:
    run = reduced("    for _ in range(10**9):\n        x = x + x\n", op_budget=100_000)
    error = fails(BudgetError, run, code="AHBM-B101", says="100000", sites=1)
    assert "bad.py:8" in str(error)


# The ranks

DISAGREEMENTS: dict[str, Callable[[int, Any], object]] = {
    "op": lambda rank, x: dist.all_reduce(x, "max" if rank == 1 else "sum"),
    "shape": lambda rank, x: dist.all_reduce(x[:2] if rank == 1 else x),
    "dtype": lambda rank, x: dist.all_reduce(x.astype(np.float64) if rank == 1 else x),
    "root": lambda rank, x: dist.broadcast(x, src=int(rank == 1)),
    "collective": lambda rank, x: dist.barrier() if rank == 1 else dist.all_reduce(x),
}


@pytest.mark.parametrize("term", DISAGREEMENTS)
def test_ranks_that_disagree(term: str) -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm")
        DISAGREEMENTS[term](rank, np.ones(4, np.float32))

    error = fails(
        DistributedError,
        spawned(worker),
        code="AHBM-X110",
        says=rf"disagree on {term}: ranks 0, 2 have .+; rank 1 has .+",
        sites=2,
    )
    assert all("test_bad_input.py:" in site.origin for site in error.sites)


def test_one_rank_that_raises() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm")
        if rank == 1:
            raise KeyError("weights")
        dist.barrier()

    with pytest.raises(RankError, match="rank 1 failed: KeyError: 'weights'") as caught:
        spawned(worker)()
    assert caught.value.code == "AHBM-X120" and isinstance(caught.value.__cause__, KeyError)
    assert caught.value.sites[0].origin.startswith("test_bad_input.py:")


def test_a_rank_that_leaves_the_others_waiting() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm")
        if rank:
            dist.barrier()

    fails(DistributedError, spawned(worker), code="AHBM-X121", says="rank 0, which has returned", sites=2)


@pytest.mark.parametrize(
    "tensor",
    [
        3.5,
        [1.0, 2.0],
        None,
        "text",
        np.zeros(3, np.complex64),
        np.zeros(3, bool),
        np.zeros(3, ">f4"),
        np.broadcast_to(np.zeros(1, np.float32), 3),
    ],
    ids=lambda tensor: type(tensor).__name__,
)
def test_things_that_are_no_tensors(tensor: Any) -> None:
    def worker(rank: int) -> None:
        dist.init_process_group(backend="ahbm")
        dist.all_reduce(tensor)

    with pytest.raises(RankError, match=r"AHBM-(X|U)130"):
        spawned(worker)()


def interrupt_soon() -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_keyboard_interrupt_in_a_simulation() -> None:
    body = """
    for _ in range(400_000):
        tl.send(dir='global_E', src=x)
        x = tl.recv(dir='global_W', shape=(n,), dtype=dtype)
"""
    run = reduced(body, elements=4096)

    def simulate() -> None:
        interrupt_soon()
        run()

    with pytest.raises(InterruptedRun) as caught:
        simulate()
    assert caught.value.code == "AHBM-I101"


def test_keyboard_interrupt_while_a_kernel_is_captured() -> None:
    run = reduced("    while True:\n        pass\n")
    interrupt_soon()
    with pytest.raises(InterruptedRun) as caught:
        run()
    assert caught.value.code == "AHBM-I101"
