"""Scripts for GPUs on devices that are not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

from jobs import python, torchrun

from ahbm.base.words import lasts

HERE = Path(__file__).parent
MACHINE = """\
system: {sips: {count: 1}}
pe: {roofline: {peak_tflops: PEAK, memory_gbs: MEMORY, launch_ns: LAUNCH}}
"""


def run(*arguments: str, fresh: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m ahbm.torch` with these arguments."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")}
    return python("-m", "ahbm.torch", *arguments, env=clean | {"AHBM_PAGE": "0"} | env, fresh=fresh)


def step_ns(folder: Path, peak: float, memory: float, launch: float, width: int = 256) -> float:
    """What a step takes on a machine."""
    topology = folder / "machine.yaml"
    filled = MACHINE.replace("PEAK", f"{peak}").replace("MEMORY", f"{memory}").replace("LAUNCH", f"{launch}")
    topology.write_text(filled)
    target = folder / f"{peak}-{memory}-{launch}"
    done = run(
        "--device", "cuda", str(HERE / "device_step.py"), f"{width}",
        AHBM_TOPOLOGY=str(topology), AHBM_REPORT=str(target),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: float = json.loads((target / "answer.json").read_text())["step_ns"]
    return found


def test_a_script_finds_all_that_scripts_look_for() -> None:
    done = run("--device", "cuda:2", str(HERE / "device_job.py"), fresh=True)
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr
    assert done.stderr.count("2 cuda devices that are not there") == 1
    assert "torch.compile leaves its function as it is" in done.stderr


def test_kernels_count_as_torch_counts_and_take_what_the_roofline_says(tmp_path: Path) -> None:
    bound = step_ns(tmp_path, 0.001, 1e6, 0)
    assert step_ns(tmp_path, 0.002, 1e6, 0) == pytest.approx(bound / 2, rel=1e-3)
    assert step_ns(tmp_path, 0.001, 5e5, 0) == pytest.approx(bound, rel=1e-3)
    assert step_ns(tmp_path, 0.001, 1e6, 1000) > bound + 20_000


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    script = str(HERE / "device_step.py")
    unknown = run("--device", "tpu", script)
    assert unknown.returncode and "AHBM-C127" in unknown.stderr and "cuda:8" in unknown.stderr
    assert "--ranks 1" in run("--fake", script).stderr
    (tmp_path / "meets.py").write_text("import torch.distributed as dist\ndist.init_process_group('nccl')\n")
    large = run("--device", "cuda", "--ranks", "64", str(tmp_path / "meets.py"), AHBM_TOPOLOGY="dgx_h200")
    assert 'AHBM_TOPOLOGY="dgx_h200, system.sips.count=64"' in large.stderr
    hosts = run("--device", "cuda", script, GROUP_WORLD_SIZE="2")
    assert hosts.returncode and "AHBM-U156" in hosts.stderr
    model = run(script, AHBM_COMPUTE="model")
    assert model.returncode


DDP = """\
import os, torch, torch.distributed as dist
rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(rank)
dist.init_process_group('nccl')
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).to(rank), device_ids=[rank])
def hook(_, bucket):
    assert bucket.buffer().is_cuda and all(x.is_cuda for x in bucket.gradients())
    bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])
net.register_comm_hook(None, hook)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.ones(8, 512, device=rank)).sum()
    loss.backward()
    optimizer.step()
    print(dist.get_world_size(), loss.item())
"""


@pytest.mark.parametrize("fake", [(), ("--fake",)])
def test_one_process_stands_for_many(fake: tuple[str, ...], tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    answers = []
    for number in range(2):
        target = tmp_path / f"{number}"
        done = run("--device", "cuda:8", "--ranks", "16", "--rank", "9", *fake, str(script), AHBM_REPORT=str(target))
        assert done.returncode == 0 and done.stdout.count("16 ") == 3, done.stderr
        answers.append((target / "answer.json").read_bytes())
    assert answers[0] == answers[1] and "ddp.py:9  all_reduce" in done.stderr


def test_the_answer_replays_what_the_run_ran(tmp_path: Path) -> None:
    script, target = tmp_path / "ddp.py", tmp_path / "out"
    script.write_text(DDP)
    env = {"AHBM_REPORT": str(target), "AHBM_TOPOLOGY": "npu_ring_8"}
    done = torchrun(script, 4, launcher=("-m", "ahbm.torch", "--device", "cuda"), **env)
    assert done.returncode == 0, done.stderr
    live = json.loads((target / "calls.json").read_text())
    (line,) = (line for line in json.loads((target / "answer.json").read_text())["lines"] if line["line"] == "ddp.py:9")
    steps = [call for call in live if call["collective"] == "all_reduce" and call["bytes"] > 512 * 512 * 4]
    assert {call["algorithm"] for call in steps} == {line["algorithm"]}
    assert line["time_ns"] == pytest.approx(steps[-1]["latency_ns"], rel=0.05)


CAST = """\
import torch
with torch.device('cuda'):
    made = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Linear(8, 8))
cast = made.to(torch.bfloat16)
print(cast is made, {one.dtype for one in cast.parameters()}, {one.device.type for one in cast.parameters()})
moved = torch.nn.Linear(8, 8).to(torch.bfloat16).cuda()
print(moved.weight.dtype, moved.weight.is_cuda, moved(cast(torch.zeros(4, dtype=torch.long, device='cuda'))).dtype)
"""


def test_a_model_without_data_is_cast_to_another_type(tmp_path: Path) -> None:
    script = tmp_path / "cast.py"
    script.write_text(CAST)
    done = run("--device", "cuda:8", "--ranks", "8", "--fake", str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "True {torch.bfloat16} {'cuda'}",
        "torch.bfloat16 True torch.bfloat16",
    ]


@pytest.mark.parametrize("alone", [True, False])
def test_the_page_says_what_the_answer_says(alone: bool, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    script, target = tmp_path / "ddp.py", tmp_path / "out"
    script.write_text(DDP)
    env = {"AHBM_REPORT": str(target), "AHBM_PAGE": "1"}
    if alone:
        done = run("--device", "cuda:8", "--ranks", "8", str(script), **env)
    else:
        done = torchrun(script, 2, launcher=("-m", "ahbm.torch", "--device", "cuda"), **env)
    assert done.returncode == 0 and "no page" not in done.stderr, done.stderr
    answer, told = json.loads((target / "answer.json").read_text()), (target / "answer.txt").read_text()
    page = (target / "step.html").read_text()
    tables = {key: page.split(f'id="{key}"')[1].split("</table>")[0] for key in ("help", "lines", "memory")}
    cells = {key: set(re.findall(r"<td[^>]*>([^<]*)</td>", table)) for key, table in tables.items()}
    assert told.splitlines()[0].removeprefix("ahbm: ") in page
    changes = re.findall(r"^with (.*): (.*) \(-(.*) %\)$", told, re.MULTILINE)
    assert changes and all(cells["help"].issuperset(change) for change in changes)
    (line,) = (line for line in answer["lines"] if line["line"] == "ddp.py:9")
    exposed = lasts(line["exposed_ns"])
    assert line["calls"] == 1 and cells["lines"].issuperset({"ddp.py:9", "all_reduce", "1", exposed})
    assert line["exposed_ns"] and f"  {exposed}  " in told
    peaks = answer["memory_peak_bytes"]
    assert len(peaks) == (1 if alone else 2) and f"{peaks[0] / 2**30:.3f}" in cells["memory"]
    assert "Critical path" in page


@pytest.mark.parametrize("alone", [True, False])
def test_more_bandwidth_is_that_of_the_protocol_too(alone: bool, tmp_path: Path) -> None:
    script, target = tmp_path / "ddp.py", tmp_path / "out"
    script.write_text(DDP.replace("512", "4096"))  # so that the host is faster than the network
    env = {"AHBM_REPORT": str(target), "AHBM_TOPOLOGY": "p5", "AHBM_PAGE": "0"}
    if alone:
        done = run("--device", "cuda:8", "--ranks", "8", str(script), **env)
    else:
        done = torchrun(script, 2, launcher=("-m", "ahbm.torch", "--device", "cuda"), **env)
    assert done.returncode == 0, done.stderr
    told = (target / "answer.txt").read_text()
    (gain,) = re.findall(
        r"^with twice the bandwidth between devices and of protocol .*simple: .* \(-(.*) %\)$", told, re.M
    )
    assert float(gain) > 1


SYNCHRONISED = """\
import os, time, torch, torch.distributed as dist
rank = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(rank)
dist.init_process_group('nccl')
for size in (8, 1 << 20):
    later = lambda: dist.all_reduce(torch.ones(2, device=rank))
    for wait in (torch.cuda.synchronize, torch.accelerator.synchronize, later):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        x = torch.full((size,), rank + 1.0, device=rank)
        start.record()
        work = dist.all_reduce(x, async_op=True)
        time.sleep(0.02 * rank)
        wait()
        end.record()
        assert x[0] == x[-1] == 3, (size, x)
        assert start.elapsed_time(end) > 0
        work.wait()
"""


@pytest.mark.parametrize("compute", ["model", "none"])
def test_a_device_that_was_synchronised_has_done_its_collectives(compute: str, tmp_path: Path) -> None:
    script = tmp_path / "synchronised.py"
    script.write_text(SYNCHRONISED)
    done = torchrun(script, 2, launcher=("-m", "ahbm.torch", "--device", "cuda"), AHBM_PAGE="0", AHBM_COMPUTE=compute)
    assert done.returncode == 0, done.stderr
