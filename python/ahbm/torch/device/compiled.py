"""Kernels that a script compiles itself, with Triton or nvcc: there is no device that they could run on.

They are refused (AHBM-U156), because their results would be missing. Without data (`--fake`) nothing is missing but
their time. Where AHBM_KERNELS has a factor for a kernel's name, it takes so many times as long as its tensors take to
be read or written once. With TRITON_INTERPRET=1, Triton runs kernels on the host; the same rule times them.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ahbm.torch.device import marks, native
from ahbm.torch.device.described import whole
from ahbm.torch.device.meter import FACTORS, meter

CALLS = 3
"""Of a function that is benchmarked, after the first."""
_HINT = "TRITON_INTERPRET=1 runs it on the host; {name}=1 in " + FACTORS + " gives it a time under --fake"


def install() -> None:
    """Puts all this in place, once these libraries are imported."""
    native.when_imported(("triton.runtime.jit",), _functions)
    native.when_imported(("triton.runtime.interpreter",), _interpreted)
    native.when_imported(("triton.runtime.autotuner",), _tuned)
    native.when_imported(("triton.testing",), _testing)
    native.when_imported(("torch.utils.cpp_extension",), _extensions)
    torch.cuda._compile_kernel = native.refusing("torch.cuda._compile_kernel")


def _takes(name: str, args: Any, kw: Any) -> None:
    given = [x for x in tree_leaves((args, kw)) if isinstance(x, torch.Tensor)]
    meter.add(name, 0, sum({id(x): whole(x) for x in given}.values()), "f16")


def _functions(module: Any) -> None:
    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kw: Any) -> None:
        name = self.fn.__name__
        if marks.fake[0] is None or not any(text in name for text, _ in meter.factors):
            raise native.refusal(f"the Triton kernel {name}", hint=_HINT.format(name=name))
        if not warmup:
            _takes(name, args, kw)

    module.JITFunction.run = run


def _interpreted(module: Any) -> None:
    runs = module.InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kw: Any) -> Any:
        if not warmup:
            _takes(self.fn.__name__, args, kw)
        before, marks.honest[0] = marks.honest[0], threading.get_ident()
        try:
            return runs(self, *args, grid=grid, warmup=warmup, **kw)
        finally:
            marks.honest[0] = before

    module.InterpretedFunction.run = run


def _tuned(module: Any) -> None:
    def run(self: Any, *args: Any, **kw: Any) -> Any:
        """Its first configuration: there is nothing to measure others with."""
        return self.fn.run(*args, **kw, **self.configs[0].all_kwargs())

    module.Autotuner.run = run


def _testing(module: Any) -> None:
    def do_bench(
        fn: Any,
        warmup: Any = 25,
        rep: Any = 100,
        grad_to_none: Any = None,
        quantiles: Any = None,
        return_mode: str = "mean",
    ) -> Any:
        """As Triton's, in simulated time, of which a few calls tell as much as many."""
        fn()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(CALLS + 1)]
        events[0].record()
        for event in events[1:]:
            for x in grad_to_none or ():
                x.grad = None
            fn()
            event.record()
        torch.cuda.synchronize()
        times = [before.elapsed_time(after) for before, after in pairwise(events)]
        return module._summarize_statistics(times, quantiles, return_mode)

    module.do_bench = do_bench


def _extensions(module: Any) -> None:
    module._join_cuda_home = native.refusing("torch.utils.cpp_extension with sources for CUDA")
