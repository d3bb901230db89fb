"""A host that takes time to issue what a device does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import python

import ahbm
from ahbm._core import Machine
from ahbm.job.replay import JobReport
from ahbm.torch.device import advice, answer, batches, scratch
from ahbm.torch.device.host import QUEUE, Host
from ahbm.torch.device.kept import Kept
from ahbm.torch.device.lanes import Lanes
from ahbm.torch.device.steps import Found
from ahbm.torch.journal import write

MACHINE = """\
system: {sips: {count: 1}}
sip: {cube_mesh: {w: 1, h: 1}}
cube: {pe_layout: {corners: 1, pe_per_corner: 1}}
pe: {roofline: {peak_tflops: 100, memory_gbs: 1000, host_gbs: 50}}
compute: {units: 100, clock_mhz: 1500, l2_mib: 40}
"""
US = 1_000_000
KEYS = [
    "operation", "launch", "view", "python", "node", "backward", "optimizer", "parameter", "tensor", "own",
    "synchronize", "product", "plan", "generated", "norm", "collective",
]  # fmt: skip


def host(us: float) -> Host:
    """One that takes so long for everything."""
    return Host({f"{key}_ns": us * 1000 for key in KEYS} | {"staging_gbs": 10.0, "factor": 1.0})


class Queue:
    """A rank whose host issues kernels, as a meter has it."""

    def __init__(self, us: float) -> None:
        self.lanes = Lanes(0)
        self.lanes.host = host(us)

    def kernel(self, us: float) -> None:
        """One that takes so long on the device, whose host takes its time for a launch."""
        assert self.lanes.host is not None
        self.lanes.host.launches()
        self.lanes.kernel("kernel", 0, round(us * 1e6), "f16", False)  # at 1000 GB/s

    def synchronize(self) -> None:
        """The host waits for the device."""
        self.lanes.host_waits(self.lanes.tail(-1))

    def replayed(self, folder: Path) -> JobReport:
        """The job on a machine whose kernels start at once."""
        write(self.lanes.nodes(), folder / "step", 0, 1)
        machine = folder / "machine.yaml"
        machine.write_text(MACHINE.partition("compute")[0])
        found = ahbm.open(folder / "step", topology=machine, kind="job").run()
        assert isinstance(found, JobReport)
        return found


def test_short_kernels_wait_for_the_host_and_long_ones_do_not(tmp_path: Path) -> None:
    def of(count: int, us: float) -> tuple[float, float, float]:
        queue = Queue(10)
        for _ in range(count):
            queue.kernel(us)
        folder = tmp_path / f"{count}-{us}"
        found = queue.replayed(folder).ranks[0]
        assert found.total_ns == found.compute_ns + found.host_ns and found.exposed_ns == 0
        return found.total_ns, found.compute_ns, found.host_ns

    assert of(20, 1) == (201_000, 20_000, 181_000)
    assert of(40, 1) == (401_000, 40_000, 361_000)
    assert of(20, 50) == (1_010_000, 1_000_000, 10_000)


def test_a_host_is_ahead_by_no_more_than_its_queue(tmp_path: Path) -> None:
    queue = Queue(1)
    for _ in range(QUEUE + 11):
        queue.kernel(2)
    queue.synchronize()
    queue.kernel(2)
    total = queue.replayed(tmp_path).ranks[0].total_ns
    assert total == 1000 + 2000 * (QUEUE + 11) + 1000 + 2000
    hosts = [node for node in queue.lanes.nodes() if node[1] == "host"]
    assert [len(node[2]) for node in hosts[QUEUE - 1 : QUEUE + 2]] == [1, 2, 2]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=12))
def test_a_wait_makes_nothing_faster_and_one_submission_nothing_slower(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    def total(*, waits: bool, at_once: bool = False) -> float:
        queue = Queue(7)
        assert queue.lanes.host is not None
        if at_once:
            with queue.lanes.host.submission():
                for us, _ in steps:
                    queue.kernel(us)
        else:
            for us, waited in steps:
                queue.kernel(us)
                if waits and waited:
                    queue.synchronize()
        return queue.replayed(tmp_path_factory.mktemp("job")).latency_ns

    freely = total(waits=False)
    assert total(waits=True) >= freely >= total(waits=False, at_once=True)
    assert total(waits=False, at_once=True) == 7000 + sum(us for us, _ in steps) * 1000


# ---------------------------------------------------------------- whole scripts

LOOP = """\
import sys, torch, ahbm.torch
what, count, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
x = torch.zeros(width, device="cuda")
a = torch.zeros(width, width, device="cuda", dtype=torch.bfloat16) if what == "product" else x
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
def work():
    for _ in range(count):
        a @ a if what == "product" else x.add_(1)
graph = torch.cuda.CUDAGraph()
if what == "graph":
    with torch.cuda.graph(graph):
        work()
torch.cuda.synchronize()
start.record()
for _ in range(4):
    graph.replay() if what == "graph" else work()
    if what == "waits":
        torch.cuda.synchronize()
    ahbm.torch.step()
end.record()
torch.cuda.synchronize()
print(start.elapsed_time(end) * 1e6 / 4)
"""


def run(folder: Path, script: str, *args: str, machine: str = MACHINE) -> tuple[dict[str, Any], str]:
    """The answer, and what the script prints."""
    topology, source = folder / "machine.yaml", folder / "script.py"
    topology.write_text(machine)
    source.write_text(script)
    env = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")}
    env |= {"AHBM_PAGE": "0", "AHBM_TOPOLOGY": str(topology), "AHBM_REPORT": str(folder / "answer")}
    done: subprocess.CompletedProcess[str] = python(
        "-m", "ahbm.torch", "--device", "cuda", "--ranks", "1", "--fake", str(source), *args, env=env
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "answer" / "answer.json").read_text()), done.stdout


@pytest.mark.parametrize("what", ["adds", "waits", "graph"])
def test_twice_the_operations_take_twice_the_time_of_a_host(tmp_path: Path, what: str) -> None:
    (one, told), (two, _) = run(tmp_path, LOOP, what, "50", "8"), run(tmp_path, LOOP, what, "100", "8")
    if what == "graph":
        assert one["host_ns"][0] < 50_000 and two["host_ns"][0] == pytest.approx(one["host_ns"][0], rel=0.3)
    else:
        assert two["step_ns"] == pytest.approx(2 * one["step_ns"], rel=0.05)
        assert one["host_ns"][0] > 0.8 * one["step_ns"]
    assert float(told) == pytest.approx(one["step_ns"], rel=0.1)
    assert run(tmp_path, LOOP, what, "50", "8") == (one, told)


WHOLE = """\
import torch
net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(10))).cuda()
optimizer = torch.optim.AdamW(net.parameters(), capturable=True)
x = torch.zeros(4, 8, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=True)
    net(x).sum().backward()
    optimizer.step()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(5):
        step()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(5):
    graph.replay()
"""


def test_a_step_that_was_captured_is_a_replay_of_it_and_not_what_warmed_up(tmp_path: Path) -> None:
    found, _ = run(tmp_path, WHOLE)
    assert found["steps"] == 3 and found["ended_after"] == 10 and found["kernels"] > 30
    assert found["host_ns"][0] < 50_000


def test_products_that_are_large_leave_the_host_waiting(tmp_path: Path) -> None:
    found, told = run(tmp_path, LOOP, "product", "20", "8192")
    assert found["host_ns"][0] < 0.01 * found["step_ns"]
    slow = MACHINE.replace("l2_mib: 40", "l2_mib: 40, host: {operation_ns: 50000}")
    assert run(tmp_path, LOOP, "product", "20", "8192", machine=slow)[0]["step_ns"] == pytest.approx(
        found["step_ns"], rel=0.01
    )
    assert float(told) == pytest.approx(found["step_ns"], rel=0.1)


def test_a_host_takes_so_many_times_as_long_as_the_one_that_was_measured() -> None:
    values = {f"{key}_ns": 1000.0 for key in KEYS} | {"staging_gbs": 10.0}
    one, twice = (Host(values | {"factor": factor}) for factor in (1.0, 2.0))
    assert twice.ps == {key: 2 * ps for key, ps in one.ps.items()} and one.launch == 1_000_000
    one.stages(10_000)
    twice.stages(10_000)
    assert (one.staged, twice.staged) == (1_000_000, 2_000_000)


def test_a_machine_that_says_nothing_of_its_host_has_one_that_takes_nothing(tmp_path: Path) -> None:
    found, _ = run(tmp_path, LOOP, "adds", "50", "8", machine=MACHINE.partition("compute")[0])
    assert found["host_ns"] == [0] and found["compute_ns"][0] == pytest.approx(found["step_ns"])
    assert "host" not in (tmp_path / "answer" / "answer.txt").read_text()


COPIES = """\
import sys, torch, ahbm.torch
pinned, asynchronous = "pinned" in sys.argv, "asynchronous" in sys.argv
held = torch.zeros(1 << 22, pin_memory=pinned)
x = torch.zeros(1 << 22, device="cuda")
for _ in range(4):
    held.to("cuda", non_blocking=asynchronous)
    for _ in range(200):
        x.mul_(2)
    ahbm.torch.step()
"""


def test_a_copy_of_pinned_memory_is_faster_and_need_not_be_waited_for(tmp_path: Path) -> None:
    plain, waits, best = (run(tmp_path, COPIES, *how)[0] for how in ([], ["pinned"], ["pinned", "asynchronous"]))
    assert plain["host_ns"][0] > waits["host_ns"][0] + (1 << 24) / 12 * 0.9
    assert waits["step_ns"] > best["step_ns"]


TRAINING = """\
import sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(int(sys.argv[1])))).cuda()
optimizer = torch.optim.AdamW(net.parameters(), fused="fused" in sys.argv, foreach="foreach" in sys.argv)
x = torch.zeros(4, 8, device="cuda")
for _ in range(4):
    optimizer.zero_grad()
    loss = net(x).sum()
    loss.backward()
    optimizer.step()
    if "item" in sys.argv:
        loss.item()
"""


def test_steps_take_longer_by_their_layers_their_waits_and_their_loops(tmp_path: Path) -> None:
    def step(*args: str) -> float:
        found: float = run(tmp_path, TRAINING, *args)[0]["step_ns"]
        return found

    few, many = step("10", "foreach"), step("20", "foreach")
    assert 1.6 * few < many < 2 * few
    assert step("10", "foreach", "item") > few
    assert step("10") > few > step("10", "fused")


BY_HAND = """\
import torch
net = torch.nn.Linear(8, 8).cuda()
x = torch.ones(4, 8, device="cuda")
for epoch in range(2):
    for _ in range(4):
        net.zero_grad()
        net(x).sum().backward()
        for p in net.parameters():
            p.data.add_(p.grad, alpha=-0.1)
    with torch.no_grad():
        for _ in range(12):
            net(x).sum()
"""


def test_iterations_end_with_backward_where_no_pattern_is_most(tmp_path: Path) -> None:
    """Without an optimizer, and with evaluations that are longer than an epoch."""
    found, _ = run(tmp_path, BY_HAND)
    assert found["ended_after"] == 8 and 0 < found["steps"] < 8
    again, _ = run(tmp_path, BY_HAND.replace("range(12)", "range(3)"))
    assert again["step_ns"] == found["step_ns"]


BOTH = """\
import torch, ahbm.torch
a, b = torch.ones(64, 64, device="cuda"), torch.ones(8, device="cuda")
for _ in range(3):
    for _ in range(20):
        a @ a
        b.add_(1)
    ahbm.torch.step()
"""


def test_each_change_of_a_script_is_a_job_of_its_own(tmp_path: Path) -> None:
    found, _ = run(tmp_path, BOTH)
    after = {each["what"]: each["step_ns"] for each in found["changes"]}
    assert after[advice.GRAPH] == pytest.approx(found["compute_ns"][0], rel=0.01)
    assert after[advice.GRAPH] < after[advice.TF32] < found["step_ns"] * 1.0001


def test_a_fused_optimizer_is_simulated_as_it_then_runs(tmp_path: Path) -> None:
    found, _ = run(tmp_path, TRAINING, "10", "foreach")
    after = {each["what"]: each["step_ns"] for each in found["changes"]}
    fused, _ = run(tmp_path, TRAINING, "10", "fused")
    assert after[advice.FUSED] == pytest.approx(fused["step_ns"], rel=0.03)
    assert after[advice.FUSED] < 0.95 * found["step_ns"]
    assert advice.FUSED not in {each["what"] for each in fused["changes"]}


OTHERWISE = """\
import sys, torch
from torch.nn import functional as F
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(3))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(512) for _ in range(3))
    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.gelu(layer(norm(x)) * 1.5 + 0.1)
        return x.square().mean()
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
x = torch.randn(int(sys.argv[1]), 512, device="cuda")
model = torch.compile(net) if sys.argv[2:] else net
for _ in range(4):
    optimizer.zero_grad()
    model(x).backward()
    optimizer.step()
"""


def test_compiling_and_a_larger_batch_are_simulated_as_they_then_run(tmp_path: Path) -> None:
    found, _ = run(tmp_path, OTHERWISE, "4096")
    compiled, _ = run(tmp_path, OTHERWISE, "4096", "compile")
    larger, _ = run(tmp_path, OTHERWISE, "8192")
    after = {each["what"].partition(",")[0]: each["step_ns"] for each in found["changes"]}
    assert after[advice.COMPILED] == pytest.approx(compiled["step_ns"], rel=0.1)
    assert after[advice.COMPILED] < 0.97 * found["step_ns"]
    assert 2 * after[batches.TWICE] == pytest.approx(larger["step_ns"], rel=0.05)
    assert advice.COMPILED not in {each["what"] for each in compiled["changes"]}


@pytest.mark.parametrize(
    ("asked", "captured"),
    [
        ({"mode": "reduce-overhead"}, True),
        ({"mode": "max-autotune"}, True),
        ({"options": {"triton.cudagraphs": True}}, True),
        ({"mode": "default"}, False),
        ({"mode": "max-autotune-no-cudagraphs", "options": None}, False),
    ],
)
def test_a_host_issues_nothing_of_compiled_code_that_is_a_graph(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], captured: bool
) -> None:
    monkeypatch.setattr(scratch, "_graphed", [False])
    monkeypatch.setattr(scratch, "_depth", [1])
    scratch._captures(asked)
    inside = host(1)
    inside.generated("pointwise")
    inside.launches()
    assert inside.now == (0 if captured else 2 * US)
    monkeypatch.setattr(scratch, "_depth", [0])
    inside.launches()
    assert inside.now == (1 if captured else 3) * US


def test_gradients_that_are_clipped_are_still_scaled_beside_a_fused_optimizer() -> None:
    def node(number: int, name: str, ps: int) -> list[Any]:
        host = ("COMP_NODE", "host", [], 0, ps, [("is_cpu_op", 1)])
        facts = [("num_ops", 0), ("tensor_size", 32), ("kernel_kind", "foreach"), ("kernel_dims", (1, 2))]
        return [host, ("COMP_NODE", name, [2 * number], 0, 0, facts)]

    def kernels(optimizer_ps: int) -> list[str]:
        nodes = [each for number, name in enumerate(("_foreach_mul_", *advice.ADAM)) for each in node(number, name, 9)]
        after = advice.fused(nodes, optimizer_ps=optimizer_ps)
        return [name for _, name, _, _, _, facts in after if dict(facts).get("tensor_size")]

    assert kernels(9) == ["_foreach_add_", "_fused_adam_"]  # the host calls the optimizer before it: weights decay
    assert kernels(10) == ["_foreach_mul_", "_foreach_add_", "_fused_adam_"]


def test_a_step_says_its_rate_its_share_of_the_peak_and_between_what_it_is_likely(tmp_path: Path) -> None:
    found, _ = run(tmp_path, BOTH)
    least, most = found["step_range_ns"]
    assert least < found["step_ns"] < most and most / found["step_ns"] <= 1.35
    assert found["flops"] == 20 * 2 * 64**3 and found["kernels"] >= 40
    text = (tmp_path / "answer" / "answer.txt").read_text()
    assert "(likely " in text and f"MFU {100 * found['utilization']:.1f} %" in text
    sure = MACHINE.replace("l2_mib: 40", "l2_mib: 40, fit: {bands: {device_percent: 1, host_percent: 1}}")
    narrow = run(tmp_path, BOTH, machine=sure)[0]["step_range_ns"]
    assert least < narrow[0] < narrow[1] < most


def test_what_lies_beside_steps_goes_by_the_law_of_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.from_yaml(MACHINE, "machine", [])
    monkeypatch.setattr(answer.meter, "machine", machine)
    facts: list[tuple[str, Any]] = [("num_ops", 0), ("tensor_size", 1 << 24)]
    shape: list[tuple[str, Any]] = [("kernel_kind", "strided"), ("kernel_dims", (1 << 22, 1))]
    nodes: list[Any] = [("COMP_NODE", "copy_", [], 0, 0, facts + shape), ("COMP_NODE", "copy_", [], 0, 0, facts)]
    kept = Kept(nodes, Found([], {}, {0: (0, 2)}), True, True, 1)
    law, bare = machine.kernel_ps("", 0, 1 << 24, kind="strided", dims=(1 << 22, 1)), machine.kernel_ps("", 0, 1 << 24)
    assert answer.Beside.of(kept).ps == law + bare and law != bare


def test_libraries_divide_their_kernels_by_the_units_of_the_machine(tmp_path: Path) -> None:
    script = "import torch\ntorch.ones(8, 1 << 20, device='cuda').sum(1)\n"
    one = MACHINE.replace("units: 100", "units: 1")
    many, few = (run(tmp_path, script, machine=machine)[0]["kernels"] for machine in (MACHINE, one))
    assert (many, few) == (3, 2)  # where blocks share a sum, their counters are cleared before
