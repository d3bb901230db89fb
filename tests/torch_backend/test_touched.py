"""The bytes that kernels touch, and the types that they calculate in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")

import torch
from jobs import python
from test_device import run
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from ahbm.kernels import Flags, Tensor, describe
from ahbm.kernels.model import Call
from ahbm.kernels.touched import total as touched
from ahbm.torch.device.described import arguments, whole
from ahbm.torch.device.kernels import kind_of


class Sum(TorchDispatchMode):
    """The bytes of all kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out, known = func(*args, **kwargs), kind_of(func)
        if not known.is_quiet:
            placed, outs = arguments(known, args, kwargs, out)
            nbytes = touched(Call(known.name, placed, outs), outs or ())
            self.bytes[known.name] = self.bytes.get(known.name, 0) + nbytes
        return out


def total(work: Callable[[], object]) -> int:
    """The bytes of what `work` starts."""
    with Sum() as found:
        work()
    return sum(found.bytes.values())


ROWS, WIDTH = 64, 16
WHERE = torch.randint(0, 1000, (ROWS,))
ALL = ROWS * WIDTH * 4
INDEX = ROWS * 8


def table(rows: int) -> torch.Tensor:
    return torch.zeros(rows, WIDTH)


WIDE = WHERE[:, None].expand(ROWS, WIDTH).contiguous()
READS: dict[str, tuple[Callable[[torch.Tensor], object], int]] = {
    "embedding": (lambda t: functional.embedding(WHERE, t), 2 * ALL + INDEX),
    "index_select": (lambda t: t.index_select(0, WHERE), 2 * ALL + INDEX),
    "index": (lambda t: t[WHERE], 2 * ALL + INDEX),
    "columns": (lambda t: t[WHERE, WHERE % WIDTH], 2 * ROWS * 4 + 2 * INDEX + 2 * INDEX),
    "gather": (lambda t: t.gather(0, WIDE), 2 * ALL + INDEX * WIDTH),
    "take": (lambda t: t.take(WHERE), 2 * ROWS * 4 + INDEX),
    "bag": (lambda t: functional.embedding_bag(WHERE, t, torch.arange(0, ROWS, 4), mode="sum"), None),  # type: ignore[dict-item]
    "row": (lambda t: t[3] + 1, 2 * WIDTH * 4),
    "slice": (lambda t: t[::100][:8] + 1, 2 * 8 * WIDTH * 4),
    "select_copy": (lambda t: torch.select_copy(t, 0, 3), 2 * WIDTH * 4),
    "loss": (lambda t: torch.nn.functional.nll_loss(t[:ROWS], WHERE % WIDTH), 2 * ROWS * 4 + INDEX),
}
WRITES: dict[str, tuple[Callable[[torch.Tensor], object], int]] = {
    "index_add": (lambda t: t.index_add_(0, WHERE, table(ROWS)), 3 * ALL + INDEX),
    "index_copy": (lambda t: t.index_copy_(0, WHERE, table(ROWS)), 2 * ALL + INDEX),
    "index_fill": (lambda t: t.index_fill_(0, WHERE, 1.0), ALL + INDEX),
    "scatter": (lambda t: t.scatter_(0, WIDE, table(ROWS)), 2 * ALL + INDEX * WIDTH),
    "scatter_value": (lambda t: t.scatter_(0, WIDE, 1.0), ALL + INDEX * WIDTH),
    "scatter_add": (lambda t: t.scatter_add_(0, WIDE, table(ROWS)), 3 * ALL + INDEX * WIDTH),
    "scatter_reduce": (lambda t: t.scatter_reduce_(0, WIDE, table(ROWS), "amax"), 3 * ALL + INDEX * WIDTH),
    "put": (lambda t: t.index_put_((WHERE,), table(ROWS)), 2 * ALL + INDEX),
    "accumulate": (lambda t: t.index_put_((WHERE,), table(ROWS), accumulate=True), 3 * ALL + INDEX),
    "rows": (lambda t: t.__setitem__(WHERE, torch.ones(())), ALL + INDEX + 4),
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_rows_of_a_table_take_no_longer_where_the_table_is_larger(name: str) -> None:
    work, expected = (READS | WRITES)[name]
    small, large = table(1000), table(50_000)
    made = table(ROWS)
    with Sum() as nothing:
        table(ROWS)  # what some of the cases make beside
    beside = sum(nothing.bytes.values()) if name in ("index_add", "index_copy", "scatter", "scatter_add", "put") else 0
    beside = sum(nothing.bytes.values()) if name in ("scatter_reduce", "accumulate") else beside
    assert total(lambda: work(small)) == total(lambda: work(large)) < small.nbytes / 2 + 8 * made.nbytes
    if expected is not None and name not in ("columns", "rows", "loss"):
        assert total(lambda: work(large)) - beside == expected


def test_a_mask_writes_the_elements_that_it_has() -> None:
    large = table(50_000)
    mask = torch.zeros(50_000, dtype=torch.bool)
    mask[:ROWS] = True
    with Sum() as found:
        large.index_put_((mask,), torch.ones(()))
    assert found.bytes == {"ones": 4, "index_put_": ALL + mask.nbytes + 4}


def test_elements_that_lie_in_one_place_count_once() -> None:
    one = torch.ones(1)
    assert total(lambda: one.expand(2048, 2048).sum()) == 8
    assert total(lambda: torch.ones(2048, 1).expand(2048, 64) + one) - total(lambda: torch.ones(2048, 1)) == (
        2048 * 4 + 4 + 2048 * 64 * 4
    )
    windows = torch.ones(1024)
    assert total(lambda: windows.unfold(0, 64, 1).sum()) == 1024 * 4 + 4
    assert total(lambda: windows * windows) == 2 * windows.nbytes
    picture = torch.ones(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert total(lambda: picture + 1) == 2 * picture.nbytes
    assert total(lambda: picture.transpose(1, 2).sum()) == picture.nbytes + 4


def test_results_that_are_given_are_not_read() -> None:
    a, out = torch.ones(64), torch.empty(64)
    assert total(lambda: torch.add(a, a, out=out)) == a.nbytes + out.nbytes
    assert total(lambda: out.copy_(a)) == a.nbytes + out.nbytes
    assert total(lambda: out.add_(a)) == a.nbytes + 2 * out.nbytes


def test_sparse_tensors_are_their_indices_and_values() -> None:
    sparse = torch.eye(64).to_sparse()
    assert whole(sparse) == 64 * (2 * 8 + 4) and whole(sparse.to_sparse_csr()) == 65 * 8 + 64 * (8 + 4)
    assert total(lambda: torch.sparse.mm(sparse, torch.ones(64, 4))) >= whole(sparse)


FLAGS = """
import json, torch
from ahbm.torch.device.kernels import kind_of
from ahbm.torch.device.described import kernels

f32 = torch.float32
x, w = torch.ones(8, 8), torch.ones(2, 2, 3, 3)

def of(name, dtype):
    a = x.to(dtype)
    if name == "convolution":
        args = (torch.ones(1, 2, 8, 8), w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        func = torch.ops.aten.convolution.default
    elif name == "convolution_backward":
        args = (torch.ones(1, 2, 6, 6), torch.ones(1, 2, 8, 8), w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        args += ([True, True, False],)
        func = torch.ops.aten.convolution_backward.default
    else:
        args = (a, a, a) if name == "addmm" else (a[None], a[None]) if name == "bmm" else (a, a)
        func = getattr(torch.ops.aten, name).default
    out = func(*args)
    given = [each for each in args if isinstance(each, torch.Tensor)]
    return next(each.arithmetic for each in kernels(kind_of(func), args, {}, out, given, 108) if each.operations)

found = {"default": [of("mm", f32), of("convolution", f32)]}
torch.set_float32_matmul_precision("high")
found["high"] = [of("mm", f32), of("convolution", f32)]
torch.set_float32_matmul_precision("highest")
found["highest"] = of("bmm", f32)
torch.backends.cuda.matmul.allow_tf32 = True
found["allowed"] = of("addmm", torch.complex64)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
found["forbidden"] = [of("mm", f32), of("convolution_backward", f32)]
if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    found["precision"] = of("mm", f32)
else:
    found["precision"] = "tf32"
print(json.dumps(found))
"""


def test_flags_of_torch_say_what_is_done_in_tf32(tmp_path: Path) -> None:
    script = tmp_path / "flags.py"
    script.write_text(FLAGS)
    done = python(str(script), env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "default": ["f32", "tf32"],
        "high": ["tf32", "tf32"],
        "highest": "f32",
        "allowed": "tf32",
        "forbidden": ["f32", "f32"],
        "precision": "tf32",
    }


def test_types_that_are_not_f32_ask_no_flag() -> None:
    of = {"float16": "f16", "bfloat16": "f16", "float8_e4m3fn": "f8", "int8": "f8"}
    of |= {"float64": "f64", "complex128": "f64", "int32": "f32"}
    for tf32 in (False, True):
        flags = Flags(tf32_products=tf32)
        found = {dtype: describe("mm", (Tensor((64, 64), dtype),) * 2, flags=flags) for dtype in of}
        assert {dtype: kernels[0].arithmetic for dtype, kernels in found.items()} == of


SCRIPT = """
import json, torch

def took(work):
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(); a.record(); out = work(); b.record(); torch.cuda.synchronize()
    return round(a.elapsed_time(b) * 1e9), out

host = torch.empty(1 << 20, dtype=torch.uint8)
found = {}
found["to device"], there = took(lambda: host.to("cuda"))
found["pinned"], _ = took(lambda: host.pin_memory().to("cuda", non_blocking=True))
found["cast"], _ = took(lambda: host.to("cuda", torch.float32))
found["to host"], back = took(lambda: there.cpu())
found["into host"], _ = took(lambda: back.copy_(there))
found["into device"], _ = took(lambda: there.copy_(back))
found["device"], _ = took(lambda: there.clone())
found["data"], _ = took(lambda: torch.tensor(list(range(1024)), device="cuda"))
found["array"], _ = took(lambda: torch.as_tensor(host.numpy(), device="cuda"))
f32 = torch.ones(512, 512, device="cuda")
found["f32"], _ = took(lambda: f32 @ f32)
torch.set_float32_matmul_precision("high")
found["tf32"], _ = took(lambda: f32 @ f32)
found["f64"], _ = took(lambda: f32.double() @ f32.double())
f64 = f32.double()
found["f64"], _ = took(lambda: f64 @ f64)
half = f32.half()
found["f16"], _ = took(lambda: half @ half)
print(json.dumps(found))
"""
MACHINE = """
system: {sips: {count: 1}}
sip: {cube_mesh: {w: 1, h: 1}}
cube: {pe_layout: {corners: 1, pe_per_corner: 1}}
pe: {roofline: {peak_tflops: 100, memory_gbs: 1000, host_gbs: 10, f64_share: 0.125, f32_share: 0.0625, tf32_share: 0.5}}
"""


def test_copies_and_products_take_what_the_machine_says(tmp_path: Path) -> None:
    script, machine = tmp_path / "copies.py", tmp_path / "machine.yaml"
    script.write_text(SCRIPT)
    machine.write_text(MACHINE)
    done = run("--device", "cuda:1", str(script), AHBM_TOPOLOGY=str(machine))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    mib, product = 1 << 20, 2 * 512**3
    by_link = {"to device", "pinned", "cast", "to host", "into host", "into device", "array"}
    assert {found[name] for name in by_link} == {mib * 100}
    assert found["device"] == 2 * mib and found["data"] == 1024 * 8 * 100
    peak = {"f16": 1, "tf32": 2, "f64": 8, "f32": 16}
    assert {name: found[name] for name in peak} == {name: -(-product * n // 100) for name, n in peak.items()}
    assert "with twice the bandwidth to the host" in done.stderr


def test_factors_change_the_clock_and_the_answer(tmp_path: Path) -> None:
    script = tmp_path / "products.py"
    script.write_text("import torch\nx = torch.ones(256, 256, device='cuda')\nfor _ in range(3): x @ x\n")
    taken = []
    for kernels in ("", "mm=50"):
        target = tmp_path / f"{kernels}out"
        done = run("--device", "cuda:1", str(script), AHBM_KERNELS=kernels, AHBM_REPORT=str(target))
        assert done.returncode == 0, done.stderr
        taken.append(json.loads((target / "answer.json").read_text())["step_ns"])
    assert taken[1] > 30 * taken[0]
    wrong = run("--device", "cuda:1", str(script), AHBM_KERNELS="mm")
    assert wrong.returncode and "AHBM-C127" in wrong.stderr
