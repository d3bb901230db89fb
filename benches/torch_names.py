"""Goes through torch's public names on a device that is not there, and compares with the host.

    python -m ahbm.torch --device cuda:1 benches/torch_names.py              # all: some six minutes of processor time
    python -m ahbm.torch --device cuda:1 benches/torch_names.py --every 40   # every 40th, from --first on

Operators and modules come with torch's own samples of arguments (`op_db`, `module_db`), names of `torch.cuda` and the
like get small arguments of every kind. A finding is an error that the host does not raise and that is neither AHBM's
nor about the arguments, another value than the host's, or a result that is not on the device. One finding: exit code 1.
"""

from __future__ import annotations

import argparse
import collections
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.cuda.comm
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

from ahbm.errors import AhbmError
from ahbm.torch.device import native

HERE = "cuda:0"
SAMPLES = 3
UNLIKE = re.compile("empty|^resize_?$|as_strided|^to$")
"""Operators whose results nobody has written, or whose samples name a device or memory outside of their view."""
OF_NOTHING = {"linalg_matrix_rank", "linalg_matrix_rank_hermitian"}
"""Operators that C++ answers of empty matrices with a tensor made of nothing: it is on the host."""
LEFT_OUT = re.compile(
    "^_|read_file|write_file|_in_file|filename|^set_device|check_error|Tensor$|Storage$|^nvtx|^start$|^stop$"
)
found: collections.Counter[str] = collections.Counter()


def moved(values: Any, device: str) -> Any:
    """The values, with tensors on a device."""
    return tree_map(
        lambda x: x.detach().to(device).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x, values
    )


def tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among values."""
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def compare(name: str, want: Any, got: Any) -> None:
    """Notes where results are elsewhere or other ones."""
    wanted, here = tensors(want), tensors(got)
    if len(wanted) != len(here):
        found[f"{name}: {len(here)} tensors, and {len(wanted)} on the host"] += 1
    for x, y in zip(wanted, here, strict=False):
        if str(y.device) != HERE:
            found[f"{name}: a result is on {y.device}"] += 1
            continue
        try:
            torch.testing.assert_close(y.detach().cpu(), x.detach(), equal_nan=True, rtol=0, atol=0)
        except AssertionError:
            found[f"{name}: other values than on the host"] += 1


def outcome(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a function returns, and what it raises."""
    torch.manual_seed(0)
    try:
        return function(), None
    except Exception as error:
        return None, error


def both(name: str, on_host: Callable[[], Any], on_device: Callable[[], Any]) -> None:
    """Runs one thing on the host and on the device."""
    want, refused = outcome(on_host)
    got, error = outcome(on_device)
    if error is not None and refused is None and not (isinstance(error, AhbmError) and error.code == "AHBM-U156"):
        found[f"{name}: {type(error).__name__}: {native.first_line(error)}"] += 1
    elif error is None and refused is None:
        compare(name, want, got)


def gradients(out: Any, given: Any) -> Any:
    """The gradients of a sum of all results, in the tensors that need some."""
    ends = [x for x in tensors(out) if x.requires_grad]
    starts = [x for x in tensors(given) if x.requires_grad]
    if not ends or not starts:
        return ()
    return torch.autograd.grad(sum(x.abs().sum() for x in ends), starts, allow_unused=True)


def operators(every: int, first: int) -> int:
    """Goes through `op_db`; returns how many."""
    chosen = list(op_db)[first::every]
    for op in chosen:
        types = op.supported_dtypes("cpu")
        dtype = torch.float32 if torch.float32 in types else min(types, key=str, default=None)
        if dtype is None or UNLIKE.search(op.name):
            continue
        needs = dtype.is_floating_point and op.supports_autograd
        samples = op.sample_inputs("cpu", dtype, requires_grad=needs)
        for _, sample in zip(range(SAMPLES), samples, strict=False):
            if op.formatted_name in OF_NOTHING and not sample.input.numel():
                continue
            given = (sample.input, *sample.args), sample.kwargs

            def run(device: str, given: Any = given, op: Any = op, needs: bool = needs) -> Any:
                args, kw = moved(given, device)
                if kw.get("device") is not None:
                    kw = {**kw, "device": device}
                out = op.op(*args, **kw)
                return (out, gradients(out, (args, kw))) if needs else out

            both(op.formatted_name, lambda: run("cpu"), lambda: run("cuda"))
    return len(chosen)


def modules(every: int, first: int) -> int:
    """Goes through `module_db`; returns how many."""
    chosen = list(module_db)[first::every]
    for info in chosen:
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
        for given in inputs[:SAMPLES]:

            def run(device: str, given: Any = given, kind: Any = info.module_cls) -> Any:
                made = moved((given.constructor_input.args, given.constructor_input.kwargs), device)
                args, kw = moved((given.forward_input.args, given.forward_input.kwargs), device)
                module = kind(*made[0], **made[1]).to(device)
                out = module(*args, **kw)
                return out, gradients(out, (args, kw, list(module.parameters()))), list(module.buffers())

            both(info.name, lambda: run("cpu"), lambda: run("cuda"))
    return len(chosen)


def names() -> Iterator[tuple[str, Any]]:
    """Public functions and classes of the namespaces of devices."""
    parts = ("memory", "random", "nccl", "comm", "amp", "profiler", "graphs", "streams", "tunable", "gds", "jiterator")
    homes = [torch.cuda, torch.accelerator, torch.backends.cuda, torch.backends.cudnn]
    homes += [getattr(torch.cuda, part) for part in parts if hasattr(torch.cuda, part)]
    for home in homes:
        for name in sorted(dir(home)):
            each = getattr(home, name)
            if LEFT_OUT.search(name) or not callable(each) or inspect.ismodule(each):
                continue
            if (getattr(each, "__module__", "") or "").startswith(("torch", "ahbm")):
                yield f"{home.__name__}.{name}", each


def calls(every: int, first: int) -> int:
    """Calls what `torch.cuda` and the like have; returns how many names."""
    x = torch.ones(2, device="cuda")
    kinds = [(), (0,), (x,), ([x],), (HERE,), (x, x), ([x], [0]), (x, [0]), (1.0,), (0, 0), (True,), ({"a": 1},)]
    chosen = list(names())[first % every :: every]
    for name, each in chosen:
        for arguments in kinds:
            try:
                each(*arguments)
            except AhbmError as error:
                if error.code != "AHBM-U156":
                    found[f"{name}: {error}"] += 1
            except (TypeError, ValueError, IndexError, KeyError, AttributeError):
                pass  # about the arguments
            except Exception as error:
                if native.speaks_of_a_driver(error) and "invalid device ordinal" not in str(error):
                    found[f"{name}: {type(error).__name__}: {native.first_line(error)}"] += 1
    return len(chosen)


def optimizers() -> int:
    """Steps every optimizer twice, by each of its ways; returns how many."""
    count = 0
    kinds = [
        each for each in vars(torch.optim).values() if isinstance(each, type) and each is not torch.optim.Optimizer
    ]
    for kind in kinds:
        for way in ({}, {"foreach": True}, {"fused": True}, {"capturable": True}):
            if not set(way) <= set(inspect.signature(kind).parameters):
                continue

            def run(device: str, kind: Any = kind, way: Any = way) -> Any:
                sparse = kind is torch.optim.SparseAdam
                module = torch.nn.Embedding(4, 2, sparse=True) if sparse else torch.nn.Linear(4, 2, bias=False)
                module = module.to(device)
                given = torch.tensor([1, 2], device=device) if sparse else torch.randn(3, 4).to(device)
                optimizer = kind(module.parameters(), **(way if device == "cuda" or "capturable" not in way else {}))

                def closure() -> torch.Tensor:
                    optimizer.zero_grad()
                    loss: torch.Tensor = module(given).square().sum()
                    loss.backward()
                    return loss

                for _ in range(2):
                    optimizer.step(closure)
                return list(module.parameters())

            count += 1
            if (
                not way or "capturable" in way or "fused" in way
            ):  # other arithmetic than the host's usual one: only whether it runs
                _, error = outcome(lambda: run("cuda"))
                if error is not None:
                    found[f"{kind.__name__} {way}: {type(error).__name__}: {native.first_line(error)}"] += 1
            else:
                both(f"{kind.__name__} {way}", lambda: run("cpu"), lambda: run("cuda"))
    return count


def main() -> int:
    """Goes through what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    counts = operators(asked.every, asked.first), modules(asked.every, asked.first % len(module_db))
    counts += calls(1, 0), optimizers()
    for finding, times in sorted(found.items()):
        print(f"{finding} ({times})")
    print("{} operators, {} modules, {} names, {} ways of optimizers:".format(*counts), len(found), "findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
