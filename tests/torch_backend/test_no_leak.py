"""Nothing on a device that is not there tells of its absence: it runs as on the host, or is refused by our code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

from jobs import python, torchrun

HERE = Path(__file__).parent
NAMES = HERE.parents[1] / "benches" / "torch_names.py"


def run(*arguments: str, fresh: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    """`python -m ahbm.torch` with these arguments."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")}
    return python("-m", "ahbm.torch", "--device", *arguments, env=clean | {"AHBM_PAGE": "0"} | env, fresh=fresh)


@pytest.mark.parametrize("job", ["routed_job.py", "graph_job.py"])
def test_what_is_chosen_by_the_real_device_runs_as_on_the_host(job: str) -> None:
    done = run("cuda:1", str(HERE / job))
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr


def test_one_process_runs_on_two_devices() -> None:
    done = run("cuda:2", str(HERE / "parallel_job.py"))
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr
    assert "their kernels, and the copies between them, are counted one after the other" in done.stderr


def test_layers_of_gpus_run_over_ranks() -> None:
    done = torchrun(HERE / "many_job.py", 2, launcher=("-m", "ahbm.torch", "--device", "cuda"), AHBM_PAGE="0")
    assert done.returncode == 0 and done.stdout.count("all is there") == 2, done.stderr


def test_a_graph_takes_the_time_of_its_kernels_with_data_and_without(tmp_path: Path) -> None:
    script = tmp_path / "timed.py"
    script.write_text(
        "import sys, torch\n"
        "from ahbm.torch.device.meter import meter\n"
        "x = torch.ones(64, 64, device='cuda')\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "before = meter.busy_ps\n"
        "with torch.cuda.graph(graph):\n"
        "    y = (x @ x).relu()\n"
        "captured = meter.busy_ps - before\n"
        "for _ in range(3):\n"
        "    graph.replay()\n"
        "replayed = meter.busy_ps - before\n"
        "y = (x @ x).relu()\n"
        "print(captured, replayed == 3 * (meter.busy_ps - before - replayed) > 0)\n"
    )
    for more in ((), ("--ranks", "1", "--fake")):
        done = run("cuda:1", *more, str(script))
        assert done.returncode == 0 and done.stdout == "0 True\n", done.stderr


def test_graphs_run_without_data() -> None:
    done = run("cuda:1", "--ranks", "1", "--fake", str(HERE / "graph_job.py"), "fake")
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr


DRIVERS = {
    "raise RuntimeError('Found no NVIDIA driver on your system.')": "RuntimeError",
    "import ctypes; ctypes.CDLL('libcuda.so.1')": "OSError",
    "torch.ops.aten._cudnn_rnn_flatten_weight([x], 1, 3, 2, 4, 0, 1, False, False)": "AHBM-U156",
}


@pytest.mark.parametrize("line", DRIVERS)
def test_what_speaks_of_a_driver_gets_a_line_of_ours(line: str, tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(f"import torch\nx = torch.ones(12, device='cuda')\n{line}\n")
    done = run("cuda:1", str(script))
    assert done.returncode and "AHBM-U156" in done.stderr and DRIVERS[line] in done.stderr
    assert "driver.py:3" in done.stderr and "hint:" in done.stderr


TRITON = """\
import torch, triton, triton.language as tl
@triton.jit
def shift(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)
x = torch.ones(100, device='cuda')
shift[(1,)](x, 100, B=128)
print(x.sum().item())
"""


def test_kernels_of_triton_are_refused_unless_they_have_a_time(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    script = tmp_path / "kernel.py"
    script.write_text(TRITON)
    refused = run("cuda:1", str(script), AHBM_KERNELS="shift=2")
    assert refused.returncode and "AHBM-U156 the Triton kernel shift" in refused.stderr
    timed = run("cuda:1", "--ranks", "1", "--fake", str(script), AHBM_KERNELS="shift=2")
    assert timed.returncode == 0 and "shift takes 2 times as long" in timed.stderr, timed.stderr
    interpreted = run("cuda:1", str(script), TRITON_INTERPRET="1", fresh=True)
    assert interpreted.stdout == "200.0\n", interpreted.stderr


def test_public_names_give_what_the_host_gives_or_our_refusal() -> None:
    pytest.importorskip("expecttest")
    done = run("cuda:1", str(NAMES), "--every", "40", "--first", "3")
    assert done.returncode == 0 and " 0 findings" in done.stdout, done.stdout + done.stderr


PRIVATE = """\
import pynvml, torch
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(1)
print(pynvml.nvmlDeviceGetCount(), pynvml.nvmlDeviceGetMemoryInfo(handle).total == torch.cuda.mem_get_info(1)[1])
try:
    pynvml.nvmlDeviceGetFanSpeed(handle)
except pynvml.NVMLError as error:
    print(error)
from safetensors import safe_open
from safetensors.torch import load_file, save_file
save_file({"w": torch.ones(4, device="cuda")}, "FILE")
print(load_file("FILE", device="cuda:1")["w"].device)
with safe_open("FILE", "pt", device=0) as file:
    print(file.get_tensor("w").device, file.get_slice("w")[:2].device, sorted(file.keys()))
"""


def test_libraries_that_ask_the_driver_are_answered(tmp_path: Path) -> None:
    pytest.importorskip("pynvml")
    pytest.importorskip("safetensors")
    script = tmp_path / "libraries.py"
    script.write_text(PRIVATE.replace("FILE", str(tmp_path / "w.safetensors")))
    done = run("cuda:2", str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2 True", "Not Supported", "cuda:1", "cuda:0 cuda:0 ['w']"]
