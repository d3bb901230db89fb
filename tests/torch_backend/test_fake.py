"""Scripts whose tensors have no data (`--fake`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from test_device import run

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files that a run with data has written."""
    torch.save({"labels": torch.tensor([3, 1, 2]), "images": torch.ones(64, 3, 8, 8)}, tmp_path / "real.pt")
    (np.arange(5000) % 1000).astype(np.uint16).tofile(tmp_path / "tokens.bin")
    return tmp_path


@pytest.mark.parametrize("routing", [(), ("--routing", "skew=3")])
def test_what_scripts_do_with_values_works(routing: tuple[str, ...], folder: Path) -> None:
    script = str(HERE / "fake_job.py")
    done = run("--device", "cuda:1", "--ranks", "1", "--fake", *routing, script, str(folder))
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr
    for what in ("numbers", "masks", "choices", "truth values"):
        assert done.stderr.count(f"--fake invents {what}") == 1


@pytest.mark.parametrize(("style", "ranks"), [("nano", 4), ("shards", 4), ("cifar", 1), ("experts", 4)])
def test_styles_of_public_scripts_run_unchanged(style: str, ranks: int, folder: Path) -> None:
    script = str(HERE / "fake_scripts.py")
    done = run("--device", "cuda:4", "--ranks", f"{ranks}", "--fake", script, style, str(folder))
    assert done.returncode == 0 and "all is there" in done.stdout, done.stderr
    assert "ahbm: fits:" in done.stderr


PARALLEL = """\
import os, sys, torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (4,))
net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).cuda()
net = parallelize_module(net, mesh, {"0": SequenceParallel(), "1": ColwiseParallel(), "3": RowwiseParallel()})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)
for _ in range(3):
    net(torch.ones(4, 8, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
many = [torch.ones(3, device="cuda"), torch.ones(9000, device="cuda")]
with dist._coalescing_manager(device=torch.device("cuda", 0)):
    for x in many:
        dist.all_reduce(x)
gathered = [torch.zeros(4 * x.numel(), device="cuda") for x in many]
with dist._coalescing_manager(device=torch.device("cuda", 0)):
    for out, x in zip(gathered, many):
        dist.all_gather_into_tensor(out, x)
assert many[0].tolist() == [4] * 3 and gathered[0].tolist() == [4] * 12
state = {"net": net.state_dict()}
dcp.save(state, checkpoint_id=sys.argv[1])
with torch.no_grad():
    kept = net[1].weight.to_local().clone()
    net[1].weight.zero_()
dcp.load(state, checkpoint_id=sys.argv[1])
assert torch.equal(net[1].weight.to_local(), kept) and kept.is_cuda
told = [None] * 4
dist.all_gather_object(told, "x" * (1 << 19))
assert {len(x) for x in told} == {1 << 19}
"""


def test_functional_collectives_take_the_time_that_they_take_with_data(tmp_path: Path) -> None:
    script = tmp_path / "parallel.py"
    script.write_text(PARALLEL)
    calls = []
    for fake in ((), ("--fake",)):
        env = {"AHBM_REPORT": str(tmp_path / f"{len(calls)}"), "AHBM_PAGE": "0"}
        done = run("--device", "cuda:4", "--ranks", "4", *fake, str(script), str(tmp_path / f"{len(calls)}.dcp"), **env)
        assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / f"{len(calls)}" / "answer.json").read_text())
        calls.append([(line["line"], line["collective"], line["calls"], line["time_ns"]) for line in found["lines"]])
    assert calls[0] == calls[1] and len(calls[0]) > 1


SHEETS = """\
import os, sys, torch
from safetensors.torch import load_file, save_file
model = torch.nn.Linear(1 << 10, 1 << 10).cuda()
save_file(model.state_dict() | {"count": torch.tensor([7, 8], device="cuda")}, sys.argv[1], metadata={"format": "pt"})
assert os.stat(sys.argv[1]).st_blocks * 512 < 1 << 20 < os.path.getsize(sys.argv[1])
found = load_file(sys.argv[1], device="cuda")
assert found["weight"].shape == (1 << 10, 1 << 10) and found["weight"].is_cuda and found["count"].tolist() == [7, 8]
"""


def test_files_of_safetensors_have_sizes(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    script = tmp_path / "sheets.py"
    script.write_text(SHEETS)
    done = run("--device", "cuda:1", "--ranks", "1", "--fake", str(script), str(tmp_path / "model.safetensors"))
    assert done.returncode == 0 and "zeros for what has no data" in done.stderr, done.stderr


SAVES = """\
import sys, torch
model = torch.nn.Linear(128, 128).cuda()
torch.save(model.state_dict(), sys.argv[1])
"""


def test_a_file_without_data_is_refused_by_others(tmp_path: Path) -> None:
    script, file = tmp_path / "saves.py", tmp_path / "state.pt"
    script.write_text(SAVES)
    done = run("--device", "cuda:1", "--ranks", "1", "--fake", str(script), str(file))
    assert done.returncode == 0 and "sizes and no data" in done.stderr, done.stderr
    with pytest.raises(Exception, match="tensor_without_data"):
        torch.load(file)
    with pytest.raises(Exception, match="AHBM-U156"):
        torch.load(file, weights_only=False)


def test_a_routing_that_is_none_is_refused() -> None:
    script = str(HERE / "device_step.py")
    assert run("--device", "cuda:1", "--routing", "skew=2", script).returncode == 2
    done = run("--device", "cuda:1", "--ranks", "1", "--fake", "--routing", "skew=0.5", script)
    assert done.returncode and "AHBM-C127" in done.stderr
