"""Scripts that import `mscclpp`: their plans and selectors choose the algorithms of their calls."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
import torch.distributed as dist
from jobs import python, torchrun

import ahbm.torch
from ahbm import mscclpp
from ahbm.dsl.mscclpp import AllGather
from ahbm.errors import AhbmError, ConfigError, DistributedError, RankError
from ahbm.torch import cuda
from support.allreduce import allgather_by_putting, allreduce_by_reading, spec

HERE = Path(__file__).parent
CORPUS = Path(os.environ.get("AHBM_CORPUS", "/nonexistent")) / "mscclpp_dsl/programs"
ASKED = "collectives: {all_reduce: [{max_bytes: 64, algorithm: tree_allreduce}, {algorithm: ring_allreduce}]}\n"


def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def rules(folder: Path) -> list[tuple[str, str, str]]:
    """Collective, algorithm and rule of every call of a job."""
    calls = json.loads((folder / "calls.json").read_text(encoding="utf-8"))
    return [(call["collective"], call["algorithm"], call["rule"]) for call in calls]


@pytest.mark.parametrize("generation", ["october", "head"])
def test_a_call_goes_by_selector_then_plan_then_configuration(generation: str, tmp_path: Path) -> None:
    (tmp_path / "ccl.yaml").write_text(ASKED, encoding="utf-8")
    env = {"AHBM_REPORT": str(tmp_path / "report"), "MSCCLPP_CACHE_DIR": str(tmp_path / "plans")}
    env["AHBM_CCL"] = str(tmp_path / "ccl.yaml")
    done = torchrun(HERE / "mscclpp_calls.py", 2, generation, module="ahbm.torch", **env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("torch.cuda has stand-ins for this script") == 1
    assert "GPU (" not in done.stderr
    assert rules(tmp_path / "report") == [
        ("all_reduce", "tree_allreduce", "ccl.yaml"),
        ("all_reduce", "by_switch", "plan"),
        ("all_reduce", "by_switch", "selector"),
        ("all_reduce", "by_switch", "selector"),
        ("all_gather", "ring_all_gather", "default"),
        ("barrier", "dissemination_barrier", "default"),
    ]
    assert "by_switch (plan), by_switch (selector), tree_allreduce (ccl.yaml)" in done.stderr
    assert len(list((tmp_path / "plans").iterdir())) == 2


def test_a_plan_of_another_number_of_ranks_says_that_it_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ahbm.mscclpp import choosing
    from ahbm.mscclpp.requests import CollectiveRequest

    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    own = mscclpp.compile(allreduce_by_reading, spec(), 0)

    def told(ranks: int, nbytes: int) -> str:
        asked = CollectiveRequest(ranks, ranks, 0, 0, 0, nbytes, 0, "allreduce", None)
        choosing._tell_of_others([own], asked, nbytes)
        return capsys.readouterr().err

    assert told(3, 1 << 30) == ""
    assert told(3, 1 << 12) == (
        "ahbm: the plan by_reading is for 2 ranks, 2 per node: allreduce of 3 ranks, 3 per node, is left to ccl.yaml\n"
    )
    assert told(3, 1 << 12) == ""


def test_the_fallback_can_be_forced(tmp_path: Path) -> None:
    (tmp_path / "ccl.yaml").write_text(ASKED, encoding="utf-8")
    env = {"AHBM_REPORT": str(tmp_path / "report"), "MSCCLPP_CACHE_DIR": str(tmp_path / "plans")}
    env |= {"AHBM_CCL": str(tmp_path / "ccl.yaml"), "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION": "all"}
    done = torchrun(HERE / "mscclpp_calls.py", 2, "head", module="ahbm.torch", **env)
    assert done.returncode == 0, done.stderr
    assert [(call, rule) for call, _, rule in rules(tmp_path / "report")[:4]] == [("all_reduce", "default")] * 4


def test_processes_that_select_differently_are_named_with_their_choices(tmp_path: Path) -> None:
    done = torchrun(
        HERE / "mscclpp_calls.py", 2, "october", "differs", module="ahbm.torch", MSCCLPP_CACHE_DIR=str(tmp_path)
    )
    assert done.returncode != 0
    told = "the ranks disagree on algorithm: rank 0 has by_switch (chosen by selector); rank 1 has another (chosen by"
    assert "AHBM-X110" in done.stderr and told in done.stderr


def test_a_communicator_of_its_own_executes_plans_on_addresses(tmp_path: Path) -> None:
    env = {"AHBM_REPORT": str(tmp_path / "report"), "MSCCLPP_CACHE_DIR": str(tmp_path / "plans")}
    done = torchrun(HERE / "mscclpp_group.py", 2, str(port()), module="ahbm.torch", **env)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 is done", "rank 1 is done"]
    assert [rule for collective, _, rule in rules(tmp_path / "report") if collective == "all_reduce"] == ["plan"] * 4


def test_torchs_groups_take_selectors_among_threads() -> None:
    def worker(rank: int, name: str) -> float:
        options = {"selector": lambda algorithms, request: name if rank else "ring_allreduce"}
        dist.init_process_group("ahbm", pg_options=options)
        x = torch.ones(64)
        dist.all_reduce(x)
        dist.destroy_process_group()
        return x[0].item()

    assert ahbm.torch.spawn(worker, ("ring_allreduce",), world_size=2) == [2.0, 2.0]
    with pytest.raises(DistributedError) as caught:
        ahbm.torch.spawn(worker, ("tree_allreduce",), world_size=2)
    assert "AHBM-X111" in str(caught.value) and "rank 1: tree_allreduce" in str(caught.value)


def test_the_selector_of_a_spawn_is_for_groups_without_their_own() -> None:
    def chooses(name: str) -> Any:
        return lambda algorithms, request: (asked.append((name, request.count)), name)[1]

    def worker(rank: int) -> None:
        dist.init_process_group("ahbm")
        groups = (None, dist.new_group(), dist.new_group(pg_options={"selector": chooses("ring_allreduce")}))
        for size, group in enumerate(groups, 8):
            dist.all_reduce(torch.ones(size), group=group)

    asked: list[tuple[str, int]] = []
    ahbm.torch.spawn(worker, world_size=2, selector=chooses("tree_allreduce"))
    assert sorted(set(asked)) == [("ring_allreduce", 10), ("tree_allreduce", 8), ("tree_allreduce", 9)]
    with pytest.raises(RankError, match="AHBM-C180"):
        ahbm.torch.spawn(worker, world_size=2, selector=chooses("no_allreduce"))
    wrong: Any = "tree_allreduce"
    with pytest.raises(ConfigError, match="AHBM-C181 unknown selector 'tree_allreduce'"):
        ahbm.torch.spawn(worker, world_size=2, selector=wrong)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_that_a_script_starts_are_on_the_emulator_as_well(method: str, tmp_path: Path) -> None:
    env = {"AHBM_REPORT": str(tmp_path / "report"), "MSCCLPP_CACHE_DIR": str(tmp_path / "plans"), **os.environ}
    started = ("-m", "ahbm.torch", str(HERE / "mscclpp_spawned.py"), str(port()), method)
    # Both other methods start interpreters, which import the main module of the one that starts them.
    done = python(*started, env=env, fresh=method != "fork")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", *(f"rank {rank} of {method} is done" for rank in range(2))]
    assert rules(tmp_path / "report") == [("all_reduce", "by_switch", "plan")]


def test_a_script_without_mscclpp_keeps_torchs_own_cuda(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\nprint(torch.cuda.device_count(), torch.cuda.Event.__module__)\n", encoding="utf-8")
    done = torchrun(script, 1, module="ahbm.torch")
    assert done.returncode == 0 and done.stdout.split() == ["0", "torch.cuda.streams"], done.stderr


def test_where_there_is_a_gpu_nothing_stands_in_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(vars(torch.cuda))
    for owner, name in ((torch.Tensor, "data_ptr"), (dist, "get_backend")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cuda.stand_in({})
    assert {name for name, value in vars(torch.cuda).items() if before.get(name) is not value} == {"is_available"}
    assert capsys.readouterr().err == ""


NETIFACES = """
AF_INET = 2
interfaces = lambda: ["lo"]
ifaddresses = lambda name: {AF_INET: [{"addr": "127.0.0.1"}]}
"""
"""As much of the third-party module as the scripts ask."""


SUMS = """
import os

if "RANK" in os.environ:
    import atexit

    import torch

    made = torch.Tensor.normal_

    def normal_(x, *args, **kw):
        made(x, *args, **kw)
        some = x[::1009].clone()
        atexit.register(lambda: torch.save((some, x[::1009]), f"{os.environ['SUMS']}/{os.environ['RANK']}.pt"))
        return x

    torch.Tensor.normal_ = normal_
"""
"""Keeps a part of the only random tensor that a rank's script makes, as it is made and as it is in the end."""


def eight_ranks(script: Path, folder: Path) -> tuple[subprocess.CompletedProcess[str], list[tuple[str, str, str]]]:
    """Runs a script as it is, and its calls."""
    (folder / "netifaces.py").write_text(NETIFACES, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(SUMS, encoding="utf-8")
    env = {"AHBM_REPORT": str(folder / "report"), "MSCCLPP_CACHE_DIR": str(folder / "plans"), "SUMS": str(folder)}
    env |= {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": str(port())}
    env["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = torchrun(script, 8, module="ahbm.torch", **env)
    assert done.returncode == 0, done.stderr
    return done, rules(folder / "report")


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="AHBM_CORPUS is not set")
@pytest.mark.parametrize(
    ("script", "rule"),
    [("5acac93d/{}/dsl_with_nccl_api.py", "selector"), ("head/{}/customized_comm_with_dsl.py", "plan")],
)
def test_public_scripts_run_as_they_are_with_the_right_sums(script: str, rule: str, tmp_path: Path) -> None:
    _, calls = eight_ranks(CORPUS / script.format("examples/torch-integration"), tmp_path)
    assert ("all_reduce", "allreduce_nvls", rule) in calls
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(8)]
    sums = torch.stack([before for before, _ in ranks]).double().sum(0)
    for _, after in ranks:
        # Seven additions, each rounded to 8 bits; sums of eight normal numbers stay below 32.
        torch.testing.assert_close(after.double(), sums, atol=7 * 32 * 2**-9, rtol=0)
        assert after.equal(ranks[0][1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("mscclpp_nccl.py", [("by_switch", "selector"), (None, "default")]),
        ("mscclpp_comm.py", [("by_switch", "plan")]),
    ],
)
def test_eight_ranks_get_the_right_sums_by_the_rules(
    script: str, expected: list[tuple[str | None, str]], tmp_path: Path
) -> None:
    done, calls = eight_ranks(HERE / script, tmp_path)
    assert sorted(done.stdout.split("\n")) == ["", *(f"rank {rank} is done" for rank in range(8))]
    # Which algorithm the default is depends on the machine.
    found = [(None if rule == "default" else name, rule) for kind, name, rule in calls if kind == "all_reduce"]
    assert found == expected


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="AHBM_CORPUS is not set")
def test_a_public_script_of_a_cuda_kernel_is_refused_with_a_code(tmp_path: Path) -> None:
    (tmp_path / "netifaces.py").write_text(NETIFACES, encoding="utf-8")
    env = {"MSCCLPP_MASTER_ADDR": "127.0.0.1", "MSCCLPP_MASTER_PORT": str(port())}
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    script = CORPUS / "head/examples/torch-integration/customized_allgather.py"
    done = torchrun(script, 2, module="ahbm.torch", **env)
    assert done.returncode != 0 and "AHBM-U180 mscclpp.compile_native is not emulated" in done.stderr


def test_a_group_of_torchs_executes_plans_among_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))

    def worker(rank: int, differ: bool) -> float:
        dist.init_process_group("ahbm")
        plan = mscclpp.compile(allreduce_by_reading, spec(name=f"plan {rank * differ}"), rank)
        comm = mscclpp.CommGroup(torch_group=dist.group.WORLD).communicator
        buffer = mscclpp.RawGpuBuffer(4096)
        x = torch.utils.dlpack.from_dlpack(buffer.to_dlpack("torch.float32", [1024], [1]))
        x.fill_(rank + 1)
        side = (buffer.data(), 4096)
        mscclpp.Executor(comm).execute(rank, side[0], side[0], side[1], side[1], mscclpp.DataType.float32, plan.plan, 0)
        dist.destroy_process_group()
        return x.unique().item()

    assert ahbm.torch.spawn(worker, (False,), world_size=2) == [3.0, 3.0]
    with pytest.raises(DistributedError, match=r"rank 1 has plan 1 \(chosen by plan\)"):
        ahbm.torch.spawn(worker, (True,), world_size=2)


def test_buffers_at_other_offsets_on_another_rank_are_refused_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))

    def worker(rank: int, *offsets: int) -> float:
        dist.init_process_group("ahbm")
        plan = mscclpp.compile(allreduce_by_reading, spec(), rank)
        comm = mscclpp.CommGroup(torch_group=dist.group.WORLD).communicator
        buffer = mscclpp.RawGpuBuffer(16384)
        x = torch.utils.dlpack.from_dlpack(buffer.to_dlpack("torch.float32")).fill_(rank + 1)
        start = buffer.data() + offsets[rank]
        plan.execute(comm, start, start, 4096, 4096, mscclpp.DataType.float32, executor=mscclpp.Executor(comm))
        dist.destroy_process_group()
        return x.sum().item()

    assert ahbm.torch.spawn(worker, (512, 512), world_size=2) == [3 * 1024 + 1 * 3072, 3 * 1024 + 2 * 3072]
    with pytest.raises(DistributedError) as caught:
        ahbm.torch.spawn(worker, (512, 1024), world_size=2)
    assert caught.value.code == "AHBM-X110"
    for told in ("rank 0 has its input 512 and its output 512 bytes", "rank 1 has its input 1024 and its output 1024"):
        assert told in str(caught.value)


def test_in_place_chunks_of_ranks_are_at_one_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))

    def worker(rank: int) -> list[float]:
        dist.init_process_group("ahbm")
        plan = mscclpp.compile(allgather_by_putting, spec(name="puts", collective=AllGather(2, 1, True)), rank)
        comm = mscclpp.CommGroup(torch_group=dist.group.WORLD).communicator
        x = mscclpp.GpuBuffer((2, 512), np.float32)
        x[rank] = rank + 1
        sides = (x[rank].data.ptr, x.data.ptr, 2048, 4096)
        plan.execute(comm, *sides, mscclpp.DataType.float32, executor=mscclpp.Executor(comm))
        dist.destroy_process_group()
        return [*sorted(set(x.flat)), float(x[1, 0])]

    assert ahbm.torch.spawn(worker, world_size=2) == [[1.0, 2.0, 2.0]] * 2


def exchange(rank: int, wrong: str) -> Any:
    """Both ranks send arrays of the host's before either receives, and torch's traffic has the same tags."""
    dist.init_process_group("ahbm")
    comm, peer = mscclpp.CommGroup(torch_group=dist.group.WORLD), 1 - rank
    comm.send(np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::2] + rank, peer, 0)
    comm.send(np.array(b"hello"), peer, 1)
    work = dist.isend(torch.ones(2), 0) if rank else dist.irecv(torch.zeros(2), 1)
    numbers, text = np.zeros((3, 2), np.int64)[:2], np.zeros((), "S5")
    comm.recv(text, peer, 1)
    comm.recv(numbers, peer, 0)
    assert work is not None
    work.wait()
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    if wrong == "sizes":
        comm.recv(np.zeros(5, np.uint8), peer, 7) if rank else comm.send(np.zeros(4, np.uint8), peer, 7)
    elif wrong:
        plain = np.zeros(4)
        asked: dict[str, Any] = {
            "peer": (plain, 2, 0),
            "tag": (plain, peer, "0"),
            "frozen": (frozen, peer, 0),
            "list": ([1, 2], peer, 0),
        }
        comm.recv(*asked[wrong])
    comm.barrier()
    dist.destroy_process_group()
    return numbers.tolist(), text.item()


def test_arrays_of_the_host_go_from_rank_to_rank() -> None:
    assert ahbm.torch.spawn(exchange, ("",), world_size=2) == [
        ([[peer, peer + 2], [peer + 3, peer + 5]], b"hello") for peer in (1, 0)
    ]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("sizes", "AHBM-X110"),
        ("peer", "AHBM-X131"),
        ("frozen", "AHBM-X130"),
        ("list", "AHBM-X130"),
        ("tag", "AHBM-C129"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(wrong: str, code: str) -> None:
    with pytest.raises(AhbmError, match=code):
        ahbm.torch.spawn(exchange, (wrong,), world_size=2)


@pytest.mark.parametrize(
    ("name", "shape", "strides"),
    [
        ("torch.none", [], []),
        ("float32", [2000], []),
        ("float32", [4, 4], [400, 1]),
        ("float32", [4], [1, 1]),
        ("float32", [-1], [1]),
    ],
)
def test_views_outside_of_a_buffer_are_refused(name: str, shape: list[int], strides: list[int]) -> None:
    with pytest.raises(DistributedError, match="AHBM-X130"):
        mscclpp.RawGpuBuffer(4096).to_dlpack(name, shape, strides)
