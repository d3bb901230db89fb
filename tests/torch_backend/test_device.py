"""Scripts for GPUs on devices that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

HERE = Path(__file__).parent
MACHINE = """\
system: {sips: {count: 1}}
pe: {roofline: {peak_tflops: PEAK, memory_gbs: MEMORY, launch_ns: LAUNCH}}
"""


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m ahbm.torch` with these arguments."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")}
    command = [sys.executable, "-m", "ahbm.torch", *arguments]
    return subprocess.run(
        command, env=clean | {"AHBM_PAGE": "0"} | env, capture_output=True, text=True, timeout=300, check=False
    )


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
    done = run("--device", "cuda:2", str(HERE / "device_job.py"))
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr
    assert done.stderr.count("2 cuda devices that are not there") == 1
    assert "torch.compile leaves its function as it is" in done.stderr


def test_kernels_count_as_torch_counts_and_take_what_the_roofline_says(tmp_path: Path) -> None:
    bound = step_ns(tmp_path, 0.001, 1e6, 0)
    assert step_ns(tmp_path, 0.002, 1e6, 0) == pytest.approx(bound / 2, rel=1e-3)
    assert step_ns(tmp_path, 0.001, 5e5, 0) == pytest.approx(bound, rel=1e-3)
    assert step_ns(tmp_path, 0.001, 1e6, 1000) > bound + 20_000


def test_options_that_do_not_go_together_are_refused() -> None:
    script = str(HERE / "device_step.py")
    unknown = run("--device", "tpu", script)
    assert unknown.returncode and "AHBM-C127" in unknown.stderr and "cuda:8" in unknown.stderr
    assert run("--fake", script).returncode == 2
    hosts = run("--device", "cuda", script, GROUP_WORLD_SIZE="2")
    assert hosts.returncode and "AHBM-U156" in hosts.stderr
    model = run(script, AHBM_COMPUTE="model")
    assert model.returncode


@pytest.mark.parametrize("fake", [(), ("--fake",)])
def test_one_process_stands_for_many(fake: tuple[str, ...], tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "rank = int(os.environ['LOCAL_RANK'])\n"
        "torch.cuda.set_device(rank)\n"
        "dist.init_process_group('nccl')\n"
        "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).to(rank), device_ids=[rank])\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for _ in range(3):\n"
        "    loss = net(torch.ones(8, 512, device=rank)).sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    print(dist.get_world_size(), loss.item())\n"
    )
    answers = []
    for number in range(2):
        target = tmp_path / f"{number}"
        done = run("--device", "cuda:8", "--ranks", "64", "--rank", "9", *fake, str(script), AHBM_REPORT=str(target))
        assert done.returncode == 0 and done.stdout.count("64 ") == 3, done.stderr
        answers.append((target / "answer.json").read_bytes())
    assert answers[0] == answers[1] and "ddp.py:9  all_reduce" in done.stderr
