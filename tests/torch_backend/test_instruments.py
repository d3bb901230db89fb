"""torch's own instruments see every call, and the handles stay true while they look."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import torchrun
from scenarios import SCENARIOS
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.debug._comm_mode import c10d_collective_ops
from torch.profiler import ProfilerActivity, profile

import ahbm.torch
from ahbm.errors import UnsupportedError
from ahbm.torch import backend, work

SMALL = {"sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}

pytestmark = pytest.mark.skipif(not backend.PYTHON_BACKENDS, reason="no backends in Python before torch 2.14")


def t(n: int = 4) -> torch.Tensor:
    return torch.ones(n)


def calls(group: Any, rank: int) -> dict[str, tuple[str | None, Callable[[], Any]]]:
    """Each call of a group of two, with torch's name of it; None for what torch has no Python backend make."""
    two = [[t(), t()]]
    gather, scatter = dist.GatherOptions(), dist.ScatterOptions()
    return {
        "allreduce": ("allreduce_", lambda: group.allreduce([t()])),
        "allreduce_coalesced": ("allreduce_coalesced_", lambda: group.allreduce_coalesced([t(), t(3)])),
        "reduce": ("reduce_", lambda: group.reduce([t()], dist.ReduceOptions())),
        "broadcast": ("broadcast_", lambda: group.broadcast([t()], dist.BroadcastOptions())),
        "allgather": ("allgather_", lambda: group.allgather(two, [t()])),
        "allgather_coalesced": ("allgather_coalesced_", lambda: group.allgather_coalesced([[t()], [t()]], [t()])),
        "all_gather_single": ("_allgather_base_", lambda: group.all_gather_single(t(8), t())),
        "_allgather_base": ("_allgather_base_", lambda: group._allgather_base(t(8), t())),
        "all_gather_single_coalesced": (
            "allgather_into_tensor_coalesced_",
            lambda: group.all_gather_single_coalesced([t(8)], [t()]),
        ),
        "allgather_into_tensor_coalesced": (
            "allgather_into_tensor_coalesced_",
            lambda: group.allgather_into_tensor_coalesced([t(8)], [t()]),
        ),
        "reduce_scatter": ("reduce_scatter_", lambda: group.reduce_scatter([t()], two)),
        "reduce_scatter_single": ("_reduce_scatter_base_", lambda: group.reduce_scatter_single(t(), t(8))),
        "_reduce_scatter_base": ("_reduce_scatter_base_", lambda: group._reduce_scatter_base(t(), t(8))),
        "reduce_scatter_single_coalesced": (
            "reduce_scatter_tensor_coalesced_",
            lambda: group.reduce_scatter_single_coalesced([t()], [t(8)]),
        ),
        "reduce_scatter_tensor_coalesced": (
            "reduce_scatter_tensor_coalesced_",
            lambda: group.reduce_scatter_tensor_coalesced([t()], [t(8)]),
        ),
        "gather": ("gather_", lambda: group.gather(two if rank == 0 else [], [t()], gather)),
        "gather_single": (None, lambda: group.gather_single(t(8), t(), gather)),
        "gather_into_tensor": (None, lambda: group.gather_into_tensor(t(8), t(), gather)),
        "scatter": ("scatter_", lambda: group.scatter([t()], two if rank == 0 else [], scatter)),
        "alltoall": ("alltoall_", lambda: group.alltoall([t(), t()], [t(), t()])),
        "all_to_all_single": ("alltoall_base_", lambda: group.all_to_all_single(t(8), t(8), [], [])),
        "alltoall_base": ("alltoall_base_", lambda: group.alltoall_base(t(8), t(8), [], [])),
        "barrier": ("barrier", lambda: group.barrier()),
        "send": ("send", lambda: group.send([t()], 1, 0) if rank == 0 else group.recv([t()], 0, 0)),
        "recv": ("recv_", lambda: group.recv([t()], 1, 0) if rank == 0 else group.send([t()], 0, 0)),
        "recv_anysource": (
            "recv_any_source_",
            lambda: group.recv_anysource([t()], 0) if rank == 0 else group.send([t()], 0, 0),
        ),
    }


def test_every_call_is_seen() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        seen: list[str] = []
        group = dist.new_group([0, 1])
        for name, (told, call) in calls(group, rank).items():
            with CommDebugMode() as counted:
                handle = call()
            assert isinstance(handle, work.Work), name
            handle.wait()
            assert handle.is_completed() and handle.is_success(), name
            known = told is not None and getattr(torch.ops.c10d, told) in c10d_collective_ops
            assert counted.get_total_counts() == int(known), name
            if name == "recv_anysource" and rank == 0:
                assert handle.source_rank() == 1
            seen.append(name)
        assert set(seen) == set(backend.CALLS)

    ahbm.torch.spawn(worker, overrides=SMALL)


def test_outputs_of_what_requires_a_gradient_require_one_as_in_processes() -> None:
    def worker() -> list[bool]:
        dist.init_process_group("ahbm")
        x = torch.nn.Parameter(torch.ones(4))
        gathered, scattered, moved = torch.zeros(8), torch.zeros(2), [torch.zeros(4), torch.zeros(4)]
        dist.all_gather_into_tensor(gathered, x)
        dist.reduce_scatter_tensor(scattered, x)
        dist.all_to_all(moved, [x, x])
        assert gathered.tolist() == [1.0] * 8 and scattered.tolist() == [2.0] * 2
        with torch.no_grad():
            dist.all_gather_into_tensor(quiet := torch.zeros(8), x)
        return [t.requires_grad for t in (gathered, scattered, *moved, quiet)]

    assert ahbm.torch.spawn(worker, overrides=SMALL) == [[True, True, True, True, False]] * 2


def test_the_profiler_has_torchs_names_and_the_emulators() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        for name, (told, call) in calls(dist.group.WORLD, rank).items():
            if rank == 1:
                call().wait()
                continue
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
                call().wait()
            events = {event.name: event for event in profiled.events()}
            own = getattr(backend.Collectives, name).__name__
            assert f"ahbm:{own}" in events and (told is None or f"c10d::{told}" in events), (name, list(events))
            if name == "allreduce":
                assert events["ahbm:allreduce"].input_shapes[0] == [4]  # torch's own event has none for a list

    ahbm.torch.spawn(worker, overrides=SMALL)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_under_a_dispatch_mode(name: str) -> None:
    def worker() -> None:
        dist.init_process_group("ahbm")
        with CommDebugMode():
            SCENARIOS[name]()
        dist.destroy_process_group()

    ahbm.torch.spawn(worker, world_size=3, overrides=SMALL)


def test_hooks_of_a_group() -> None:
    def worker() -> list[str]:
        dist.init_process_group("ahbm")
        group, told = dist.group.WORLD, list[str]()
        assert group is not None
        dist.all_reduce(t())
        group.register_pre_hook(1, lambda args: told.append(f"before {args.name}"))
        group.register_post_hook(1, lambda args: told.append("after"))
        dist.all_reduce(t())
        group.unregister_pre_hook(1)
        group.unregister_post_hook(1)
        dist.all_reduce(t())
        return told

    for told in ahbm.torch.spawn(worker, overrides=SMALL):
        assert len(told) == 2 and "before" in told[0] and "allreduce" in told[0].lower() and told[1] == "after"


def test_the_flight_recorder_of_processes(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import pickle, torch, torch.distributed as dist\n"
        "from torch._C._distributed_c10d import _dump_fr_trace\n"
        "dist.init_process_group('ahbm')\n"
        "dist.all_reduce(torch.ones(4))\n"
        "names = [entry['profiling_name'] for entry in pickle.loads(_dump_fr_trace(backend='ahbm'))['entries']]\n"
        "assert names == ['ahbm:all_reduce'], names\n"
        "dist.destroy_process_group()\n"
    )
    done = torchrun(script, 2)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("watched", [True, False])
def test_tensors_that_are_refused(watched: bool) -> None:
    def worker() -> None:
        dist.init_process_group("ahbm")
        parts = [torch.ones(2), torch.ones(3)]
        for x, remedy in (
            (torch.ones(3).to_sparse(), "to_dense"),
            (torch.ones(3, 3).to_sparse_csr(), "to_dense"),
            (torch.nested.nested_tensor(parts, layout=torch.strided), "unbind"),
            (torch.nested.nested_tensor(parts, layout=torch.jagged), "unbind"),
        ):
            # Sparse tensors are summed.
            summed = [] if x.layout is torch.sparse_coo else [dist.all_reduce]
            for call in (*summed, lambda x: dist.broadcast(x, 0)):
                with pytest.raises(UnsupportedError, match="AHBM-U150") as caught:
                    call(x)
                assert remedy in str(caught.value.hint)
        with pytest.raises(UnsupportedError, match="AHBM-U153"):
            dist.all_reduce(torch.ones(3, device="meta"))
        dist.all_reduce(t())

    def looking() -> None:
        with CommDebugMode():
            worker()

    ahbm.torch.spawn(looking if watched else worker, overrides=SMALL)


def test_one_rank_alone_under_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    ahbm.torch.init_alone(rank=0, world_size=4)
    try:
        with FakeTensorMode(), CommDebugMode() as counted:
            x = torch.ones(8)
            work_ = dist.all_reduce(x, async_op=True)
            assert isinstance(work_, work.Work) and work_.wait()
        assert counted.get_total_counts() == 1
    finally:
        dist.destroy_process_group()


def test_a_new_timeout_is_that_of_every_call_seen_or_not() -> None:
    def worker(rank: int) -> None:
        dist.init_process_group("ahbm", timeout=timedelta(seconds=20))
        group: Any = dist.group.WORLD
        for timeout in (timedelta(seconds=7), timedelta(seconds=9)):
            group.set_timeout(timeout)
            for look in (nullcontext, CommDebugMode):
                with look():
                    handle = group.allreduce([t()])
                assert handle._timeout == timeout
                handle.wait()

    ahbm.torch.spawn(worker, overrides=SMALL)


@pytest.mark.parametrize("records", [False, True])
def test_compiled_functions_communicate_as_others_do(records: bool, tmp_path: Path) -> None:
    done = torchrun(Path(__file__).with_name("compiled.py"), 2, *([str(tmp_path / "job")] if records else []))
    assert done.returncode == 0, done.stderr
