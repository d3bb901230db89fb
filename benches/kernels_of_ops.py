"""Whether every operation of torch's own database has kernels that are sane: `python benches/kernels_of_ops.py`.

Runs each on small samples, as seen by the dispatcher, and describes what it sees. Prints operations by the class of
their kernels, and those that are guessed by their shapes alone.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from ahbm.kernels import describe, known
from ahbm.torch.device.described import arguments
from ahbm.torch.device.kernels import kind_of

SAMPLES = 4
"""Samples of each operation."""


class Seen(TorchDispatchMode):
    """Describes all that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, Counter[str]] = {}
        self.wrong: list[str] = []
        self.refused: list[str] = []
        """Operations some sample of which does not run on CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        kind = kind_of(func)
        if not kind.is_quiet and kind.is_aten:
            self.look(kind, arguments(kind, args, kwargs or {}, out))
        return out

    def look(self, kind: Any, given: Any) -> None:
        """Describes an operation with its results known, and without."""
        for outs in (given[1], None):
            kernels = describe(kind.name, given[0], outs)
            if outs is not None:
                self.classes.setdefault(kind.name, Counter()).update(each.kind for each in kernels)
            made = sum(x.numel for x in outs or ())
            if outs and made and kernels and not sum(each.nbytes for each in kernels):
                self.wrong.append(f"{kind.name}: no bytes")
            for each in kernels:
                if not all(0 <= n < 1 << 32 for n in each.dims) or each.nbytes < 0 or each.operations < 0:
                    self.wrong.append(f"{kind.name}: {each}")


def look() -> Seen:
    """Runs all."""
    seen = Seen()
    warnings.simplefilter("ignore")
    for op in op_db:
        dtype = torch.float32 if torch.float32 in op.dtypes else next(iter(op.dtypes), torch.float32)
        try:
            samples = iter(op.sample_inputs("cpu", dtype, requires_grad=False))
            for _, sample in zip(range(SAMPLES), samples, strict=False):
                with seen:
                    op.op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, StopIteration, AssertionError):
            seen.refused.append(op.name)
    return seen


def main() -> None:
    seen = look()
    for name, classes in sorted(seen.classes.items()):
        print(f"{name:44} {'' if known(name) else '(by shapes) '}{dict(classes)}")
    print(len(seen.classes), "operations,", sum(not known(name) for name in seen.classes), "by shapes alone")
    print(len(seen.refused), "with samples that CPU refuses:", ", ".join(dict.fromkeys(seen.refused)))
    print("\n".join(seen.wrong) or "all sane")


if __name__ == "__main__":
    main()
