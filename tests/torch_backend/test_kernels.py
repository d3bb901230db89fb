"""The kernels that a script gives a device are those that CUDA launches, whatever the host calculates with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

from test_device import run

SEEN = """
import json, torch
from ahbm.torch.device import meter as measured

seen = []
runs = measured.Meter.run

def run(self, work):
    seen.append(work)
    return runs(self, work)

measured.Meter.run = run
measured.meter.generated._tell = lambda work: measured.meter.run(work)
F, nn = torch.nn.functional, torch.nn

def kernels(work):
    seen.clear()
    out = work()
    return [[each[0], each[5], list(each[6])] for each in seen], out
"""
LAYERS = (
    SEEN
    + """
torch.manual_seed(0)
found = {}
for name, make in {
    "lstm": lambda: nn.LSTM(4, 8, 2, batch_first=True),
    "gru": lambda: nn.GRU(4, 8, bidirectional=True),
    "rnn": lambda: nn.RNN(4, 8),
    "rms": lambda: nn.RMSNorm(4),
}.items():
    host = make()
    there = make().to("cuda")
    there.load_state_dict(host.state_dict())
    x = torch.randn(3, 5, 4)
    grads = []
    for layer, at in ((host, x.clone()), (there, x.to("cuda"))):
        at.requires_grad_()

        def work():
            out = layer(at)
            (out if name == "rms" else out[0]).square().sum().backward()

        told, _ = kernels(work)
        grads.append([at.grad.cpu(), *(p.grad.cpu() for p in layer.parameters())])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*grads)), name
    found[name] = sorted({each[0] for each in told})
    found[name + " kernels"] = len(told)
packed = nn.utils.rnn.pack_sequence([torch.randn(5, 4, device="cuda"), torch.randn(3, 4, device="cuda")])
told, out = kernels(lambda: nn.LSTM(4, 8).to("cuda")(packed))
found["packed"] = sum(each[0] == "_cudnn_rnn" for each in told)
print(json.dumps(found))
"""
)
HOLLOW = (
    SEEN
    + """
w = torch.empty(2048, 1024)
nn.init.trunc_normal_(w, std=0.02)  # ends, though the numbers that are drawn again are not there
found = {}
q = torch.zeros(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
for name, more in {"plain": {}, "dropout": {"dropout_p": 0.1}, "mask": {"attn_mask": torch.zeros(64, 64, device="cuda",
                   dtype=torch.bfloat16)}}.items():
    told, _ = kernels(lambda: F.scaled_dot_product_attention(q, q, q, **more).sum().backward())
    found[name] = [each[1] for each in told if "attention" in each[0]]
with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
    told, _ = kernels(lambda: F.scaled_dot_product_attention(q, q, q))
found["flash"] = told[0][2][6]

net = nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to("cuda")
x = torch.zeros(512, 1024, device="cuda")

def step(model):
    net.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()

eager, _ = kernels(lambda: step(net))
compiled = torch.compile(net)
generated, _ = kernels(lambda: step(compiled))
found["eager"], found["generated"] = len(eager), len(generated)
found["fused"] = sorted({each[0] for each in generated if each[0].startswith("triton")})
products = [sorted(each[2] for each in told if each[1] == "product") for told in (eager, generated)]
assert products[0] == products[1]
print(json.dumps(found))
"""
)


def output(tmp_path: Path, script: str, *more: str) -> dict[str, object]:
    path = tmp_path / "script.py"
    path.write_text(script)
    done: subprocess.CompletedProcess[str] = run("--device", "cuda:1", *more, str(path), AHBM_PAGE="0")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_layers_of_libraries_are_one_operation_and_calculate_as_on_the_host(tmp_path: Path) -> None:
    found = output(tmp_path, LAYERS)
    for name in ("lstm", "gru", "rnn"):
        assert {"_cudnn_rnn", "_cudnn_rnn_backward"} <= set(found[name]), found  # type: ignore[call-overload]
        assert not {"addmm", "mkldnn_rnn_layer", "sigmoid_", "tanh"} & set(found[name])  # type: ignore[call-overload]
    assert "_fused_rms_norm" not in str(found["rms"])  # its parts keep the rounding of the host
    assert found["packed"] == 1 + 2 * 5


def test_attention_is_fused_and_generated_code_has_fewer_kernels(tmp_path: Path) -> None:
    found = output(tmp_path, HOLLOW, "--ranks", "1", "--fake")
    fused = ["fill", "attention", "fill", "reduce", "attention_backward", "cast"]
    assert found["plain"] == found["dropout"] == found["mask"] == fused
    assert found["flash"] == 0
    assert found["generated"] < found["eager"], found  # type: ignore[operator]
    assert any("native_layer_norm" in name and "to_copy" in name for name in found["fused"])  # type: ignore[attr-defined]
