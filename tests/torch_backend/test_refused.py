"""What the backend that a script asks for refuses, what devices refuse, and `--lenient`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from jobs import forked, places, python, torchrun

import ahbm.torch
from ahbm.errors import RankError
from ahbm.torch import rules

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DEVICE = ("-m", "ahbm.torch", "--device", "cuda")


def on_devices(
    script: Path, *arguments: str, ranks: int = 2, lenient: bool = False
) -> subprocess.CompletedProcess[str]:
    more = ("--lenient",) if lenient else ()
    return torchrun(script, ranks, *arguments, launcher=(*DEVICE, *more), AHBM_COMPUTE="none")


REFUSED = {
    "host": ("RuntimeError", "No backend type associated with device type cpu"),
    "int16": ("TypeError", "Input tensor data type is not supported for NCCL process group: Short"),
    "int16 message": ("RuntimeError", "Unconvertible NCCL type Short"),
    "uint16 exchange": ("RuntimeError", "Unconvertible NCCL type UInt16"),
    "band": ("ValueError", "Cannot use ReduceOp.BAND with NCCL"),
    "average of bool": ("TypeError", "Cannot use ReduceOp.AVG with boolean inputs"),
    "premul of integers": ("TypeError", "PreMulSum Data type must be"),
    "strided": ("ValueError", "Tensors must be contiguous"),
    "anybody": ("NotImplementedError", "ProcessGroupNCCL does not support recvAnysource"),
    "monitored": ("ValueError", "monitored_barrier requires a group with a CPU-capable backend"),
    "size": ("ValueError", "output tensor size must be equal to world_size times input tensor size"),
    "splits": ("RuntimeError", "Tensor's dim 0 does not divide equally across group size"),
    "gloo int16": ("RuntimeError", "Invalid scalar type"),
    "new_group": ("DistBackendError", "the ranks disagree on ranks: rank 0 has [0, 1]; rank 1 has [0]"),
}
NOTICES = (
    r"nccl: Detected non-contiguous tensor in P2P operations.*rules_job.py:\d+",
    r"nccl ignores tags: tag [12] \[rules_job.py:\d+\] and tag [12] \[rules_job.py:\d+\]",
    r"called in different orders: rank \d calls group \d+ \[rules_job.py:\d+\] and then \d+ \[rules_job.py:\d+\]",
    r"rank 0 alone \[rules_job.py:\d+\] and rank 1 in batch_isend_irecv \[rules_job.py:\d+\]",
    r"all_reduce \[rules_job.py:\d+\]: its tensor is written before its wait \[rules_job.py:\d+\]",
)


def test_calls_of_a_script_are_refused_as_its_backend_does(tmp_path: Path) -> None:
    done = on_devices(HERE / "rules_job.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        for name, (kind, words) in REFUSED.items():
            assert told[name] and kind in told[name][0] and words in told[name][1], (rank, name, told[name])
        assert {name for name, error in told.items() if error} == set(REFUSED), rank
    for notice in NOTICES:
        assert len(re.findall(f"AHBM-X135 .*{notice}", done.stderr)) == 1, (notice, done.stderr)
    assert done.stderr.count("AHBM-X135") == len(NOTICES)


CARD = """\
import os, torch, torch.distributed as dist
if len(__import__('sys').argv) > 1:
    os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']
dist.init_process_group('nccl')
x = torch.ones(2).cuda()
try:
    dist.all_reduce(x)
    print('reduced', x[0].item())
except dist.DistBackendError as error:
    print('refused', error)
    raise
"""


def test_two_ranks_on_one_device_are_refused_on_both(tmp_path: Path) -> None:
    script = tmp_path / "card.py"
    script.write_text(CARD)
    done = on_devices(script)
    assert done.returncode and done.stdout.count("Duplicate GPU detected : rank ") == 2, done
    assert "both on CUDA device 0" in done.stdout and "reduced" not in done.stdout
    assert on_devices(script, "apart").stdout.count("reduced 2.0") == 2


LENIENT = """\
import os, torch, torch.distributed as dist
rank = int(os.environ['LOCAL_RANK'])
dist.init_process_group('nccl')
dist.all_reduce(torch.ones(2, dtype=torch.int16))
x = torch.ones(4, device='cuda')[::2]
work = dist.all_reduce(x + torch.ones(2), dist.ReduceOp.MAX, async_op=True)
work.wait()
if rank == 0:
    dist.send(x, 1, tag=3)
else:
    dist.recv(x, 0, tag=3)
x.numpy()
print('passed')
"""


def test_a_lenient_run_passes_what_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "lenient.py"
    script.write_text(LENIENT)
    done = on_devices(script, lenient=True)
    assert done.stdout.count("passed") == 2 and "AHBM-X13" not in done.stderr, done.stderr


def test_operations_on_two_devices_are_refused_as_torch_does() -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")} | {"AHBM_COMPUTE": "none"}
    done = python("-m", "ahbm.torch", "--device", "cuda:2", str(HERE / "devices_job.py"), env=clean)
    assert "all as torch does" in done.stdout, done.stderr


SAMPLES = """\
import itertools, json, sys, warnings
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten
warnings.filterwarnings('ignore')
real = len(sys.argv) > 1
torch.cuda.current_device = lambda: 0
told = {}
for op in op_db[::15]:
    if torch.float32 not in op.supported_dtypes('cpu') or op.name.startswith('jiterator'):
        continue
    for number, sample in enumerate(itertools.islice(op.sample_inputs('cpu', torch.float32), 2)):
        leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        found = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.dim()]
        if len(found) < 2 or len(found) < sum(isinstance(x, torch.Tensor) for x in leaves):
            continue
        for odd in (None, *found[:3]):
            where = {i: 'cpu' if i == odd else 'cuda:0' for i in found}
            mode = FakeTensorMode() if not real else torch.no_grad()
            try:
                with mode:
                    made = [
                        x if i not in where else torch.zeros(x.shape, dtype=x.dtype).copy_(x).to(where[i]) if real
                        else torch.empty(x.shape, dtype=x.dtype, device=where[i])
                        for i, x in enumerate(leaves)
                    ]
                    first, args, kwargs = tree_unflatten(made, spec)
                    op(first, *args, **kwargs)
                told[f'{op.name} {number} {odd}'] = 'taken'
            except Exception as error:
                told[f'{op.name} {number} {odd}'] = 'refused' if 'device' in str(error) else 'other'
print(json.dumps(told))
"""
COPYING = ("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter", "index_put", "_unsafe")
"""Operations that copy from any device, which torch's fake tensors do not know."""


@pytest.mark.slow
def test_operations_with_one_operand_elsewhere_are_refused_where_torchs_fake_tensors_are(tmp_path: Path) -> None:
    pytest.importorskip("expecttest")
    script = tmp_path / "samples.py"
    script.write_text(SAMPLES)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AHBM_")} | {"AHBM_COMPUTE": "none"}
    fake = python(str(script), env=clean)
    real = python("-m", "ahbm.torch", "--device", "cuda", str(script), "real", env=clean)
    torchs, ours = (json.loads(done.stdout.splitlines()[0]) for done in (fake, real))
    counts: Counter[tuple[str, str]] = Counter()
    for name, answer in torchs.items():
        if name.startswith(COPYING) or torchs[f"{name.rpartition(' ')[0]} None"] != "taken":
            continue
        assert ours[name] == answer or "other" in (answer, ours[name]), (name, answer, ours[name])
        counts[answer, ours[name]] += 1
    assert counts["refused", "refused"] > 25 and counts["taken", "taken"] > 10, counts


def test_one_process_sees_one_device(tmp_path: Path) -> None:
    script = tmp_path / "count.py"
    script.write_text("import torch\nprint('devices', torch.cuda.device_count())\n")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("AHBM_", "LOCAL_"))}
    clean["AHBM_COMPUTE"] = "none"
    one = python("-m", "ahbm.torch", "--device", "cuda", str(script), env=clean)
    assert "devices 1" in one.stdout and "--device cuda:8 gives eight" in one.stderr
    eight = python("-m", "ahbm.torch", "--device", "cuda:8", str(script), env=clean)
    assert "devices 8" in eight.stdout and "gives eight" not in eight.stderr


def lists(rank: int) -> None:
    dist.init_process_group("ahbm")
    dist.new_group([0, 1])
    dist.new_group([2, 0] if rank else [1, 2])


def test_lists_of_a_new_group_that_differ_are_named_in_threads() -> None:
    with pytest.raises(RankError, match=r"rank 0 has \[1, 2\]; ranks 1-2 have \[0, 2\]"):
        ahbm.torch.spawn(lists, world_size=3)


def simulated(rank: int, groups: int) -> float:
    dist.init_process_group("ahbm")
    made = [dist.new_group([0, 1]) for _ in range(groups)]
    x = torch.ones(1 << 10)
    for group in (None, *made[:1]):
        dist.all_reduce(x, group=group)
    place = ahbm.torch.places.places()[0]
    return place.now_ps()


def test_agreement_on_groups_takes_no_simulated_time() -> None:
    assert ahbm.torch.spawn(simulated, (1,)) == ahbm.torch.spawn(simulated, (5,))


def written(rank: int, early: bool) -> None:
    dist.init_process_group("ahbm")
    x = torch.ones(4)
    works = [dist.all_reduce(x, async_op=True), dist.all_gather_into_tensor(torch.zeros(8), x, async_op=True)]
    if early:
        x.div_(2)
    for work in works:
        work.wait()
    if not early:
        x.div_(2)


@pytest.mark.parametrize("early", [False, True])
def test_a_write_before_the_wait_is_said(early: bool, capfd: pytest.CaptureFixture[str]) -> None:
    ahbm.torch.spawn(written, (early,))
    said = re.findall(r"AHBM-X135 (\w+) \[test_refused.py:\d+\]: its tensor is written", capfd.readouterr().err)
    assert sorted(said) == (["all_gather", "all_reduce"] if early else [])


TYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.uint16, torch.bool,
]  # fmt: skip
GLOO = """\
import json, os, sys, torch, torch.distributed as dist
sys.path.insert(0, HERE)
import test_refused
rank = int(os.environ['RANK'])
dist.init_process_group('gloo')
told = {}
for key, call in test_refused.gloo_calls(dist.group.WORLD).items():
    try:
        call()
        told[key] = None
    except Exception as error:
        told[key] = [type(error).__name__, str(error)]
if rank == 0:
    print(json.dumps(told), flush=True)
os._exit(0)
"""


def gloo_calls(group: Any) -> dict[str, Any]:
    """Calls of a group of two, symmetric between its ranks."""
    found: dict[str, Any] = {}

    def reduces(dtype: torch.dtype, op: Any) -> Any:
        opts = dist.AllreduceOptions()
        opts.reduceOp = op
        return lambda: group.allreduce([torch.ones(2).to(dtype)], opts).wait()

    for dtype in TYPES:
        x = torch.ones(2).to(dtype)
        for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            found[f"all_reduce {name} {dtype}"] = reduces(dtype, getattr(dist.ReduceOp, name))
        found[f"broadcast {dtype}"] = lambda x=x: group.broadcast([x], dist.BroadcastOptions()).wait()
        found[f"all_gather {dtype}"] = lambda x=x: group.allgather([[x.clone(), x.clone()]], [x]).wait()
        found[f"all_to_all {dtype}"] = lambda x=x: group.alltoall_base(x.clone(), x, [], []).wait()
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    found["odd outputs"] = lambda: group.allgather([[three, two]], [two]).wait()
    found["rows"] = lambda: group.alltoall_base(three.clone(), three, [], []).wait()
    found["splits"] = lambda: group.alltoall_base(three.clone(), three, [1, 1], [2, 1]).wait()
    found["even"] = lambda: group.alltoall_base(two.clone(), two, [], []).wait()
    found["one"] = lambda: group.allreduce([one]).wait()
    return found


class Group:
    """A group of two that looks at the rules of gloo and does nothing else."""

    def __init__(self) -> None:
        self.rules = rules.Rules("gloo")

    def __getattr__(self, name: str) -> Any:
        new = {"alltoall_base": "all_to_all_single"}.get(name, name)

        def call(*args: Any) -> Any:
            made = rules.call(2, new, args)
            for rule in self.rules.rows["gloo"]:
                words = rule.test and rule.test(made)
                if words is not None:
                    assert rule.raises is not None
                    raise rule.raises(words)
            return self

        return call

    def wait(self) -> None:
        pass


def test_the_rows_of_gloo_are_what_gloo_does(tmp_path: Path) -> None:
    script = tmp_path / "gloo.py"
    script.write_text(GLOO.replace("HERE", repr(str(HERE))))
    done = torchrun(script, 2)
    told = json.loads(done.stdout.splitlines()[0])
    for key, call in gloo_calls(Group()).items():
        try:
            object.__getattribute__(call, "__call__")()
            ours = None
        except Exception as error:
            ours = [type(error).__name__, str(error)]
        assert (ours is None) == (told[key] is None), (key, ours, told[key])
        if ours is not None:
            assert ours[0] == told[key][0] and ours[1].split("::")[-1].lower() in told[key][1].lower(), (
                key,
                ours,
                told[key],
            )


def test_the_page_has_the_table() -> None:
    assert rules.page() in (ROOT / "docs" / "torch.md").read_text()


def test_random_programs_do_what_gloo_does(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("gloo_programs", ROOT / "benches" / "gloo_programs.py")
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gloo_programs", bench)
    spec.loader.exec_module(bench)

    def launched(arguments: list[str], size: int, _: float) -> None:
        forked([bench.__file__, *arguments], [{**os.environ, **place} for place in places(size)], HERE)

    monkeypatch.setattr(bench, "launched", launched)
    counts: Counter[str | None] = Counter()
    for one in bench.compared([bench.program(seed, 3, 8) for seed in range(30)]):
        assert one.rule is not None, one
        counts[one.rule] += 1
    assert counts["equal"] > 400, counts
