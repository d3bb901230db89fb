"""The kernels that CUDA launches for an operation of torch, by its name and its arguments: no torch is needed.

`describe` answers for an operation whose tensors are known by shape, type and strides; `profiled` makes such arguments
of those in a trace of PyTorch's profiler. Each kernel has a class and dimensions, by which a machine says how long it
takes (`Machine.kernel_ps`), the operations and the bytes of it.

May import nothing of AHBM's.

Reading order: `model`, `rules`, `touched`, `elements`, `reductions`, then the others; `describing` is what asks them.
"""

from __future__ import annotations

from ahbm.kernels.describing import describe, known
from ahbm.kernels.model import Flags, Kernel, Tensor
from ahbm.kernels.profiled import arguments

__all__ = ["Flags", "Kernel", "Tensor", "arguments", "describe", "known"]
