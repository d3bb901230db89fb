"""What the host of a rank takes to issue what its device does.

Eager PyTorch walks through Python, the dispatcher and autograd before a kernel is launched, so short kernels leave the
device waiting. An operation takes a time by its class, and a launch a time for each of its kernels. What is seen is
what torch's dispatcher is given below autograd: `python` stands for what lies before an operation that Python asks for,
`node` for what autograd's engine does around a node's operations.

The figures are those of `compute.host` of the machine. A machine without `compute` has a host that takes no time. What
the script's own Python, its data loaders and operations on the host's tensors take, beyond a time for each of those
operations, is not known and counts for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ahbm.torch.device import scratch
from ahbm.torch.device.memory import in_backward

if TYPE_CHECKING:
    from ahbm._core import Machine

FEW = 5
"""Tensors of an operation's operands that are not counted one by one."""
QUEUE = 1024
"""Launches by which a host may be ahead of its device."""
LIBRARIES = {
    "product": "product", "convolution": "plan", "attention": "plan", "attention_backward": "plan",
}  # fmt: skip
"""Classes of kernels that generated code leaves to libraries, and what those take."""
_ACCUMULATES = (1 << 64) - 1
"""The number of every node of autograd that accumulates a gradient."""
_node: Any = torch._C._current_autograd_node
_grads = torch.is_grad_enabled
_ident = threading.get_ident


class Host:
    """The host of a rank. Times are in ps."""

    def __init__(self, values: dict[str, float]) -> None:
        """`values`: those of the section, by their keys: "operation_ns", "staging_gbs", ..."""
        times = {key.removesuffix("_ns"): value for key, value in values.items() if key.endswith("_ns")}
        ps = {key: round(value * values["factor"] * 1000) for key, value in times.items()}
        self.ps = ps
        """What it takes for each of its keys, without their unit."""
        self._python, self._in_node, self._tensor = ps["python"], ps["node"], ps["tensor"]
        self._staging = values["staging_gbs"] / values["factor"]
        self.launch, self.collective = ps["launch"], ps["collective"]
        self.now = 0
        """Where it is: at the end of what it has issued, and of what it has waited for."""
        self.pending = 0
        """What it has done that is in no journal yet."""
        self.staged = 0
        """The part of it for pageable memory."""
        self.submits = False
        """Whether launches are parts of one that was made."""
        self._takes: dict[Any, int] = {}
        self._thread = threading.main_thread().ident
        """The one that counts: others, as those of loaders, work beside it."""
        self._latest = 0
        """The node of autograd whose operations are issued."""

    def issue(self, ps: int) -> None:
        """It is busy for so long."""
        self.now += ps
        self.pending += ps

    def operation(self, known: Any, given: list[torch.Tensor]) -> None:
        """It issues an operation of the device, without launches."""
        if _ident() != self._thread:
            return
        ps = self._takes.get(known)
        if ps is None:
            ps = self._takes[known] = self._class(known)
        if not ps:
            return
        if len(given) > FEW:
            ps += self._tensor * (len(given) - FEW)
        inside = in_backward()
        if inside:
            node = _node()
            number = -1 if node is None else node._sequence_nr()
            if number == _ACCUMULATES or number != self._latest:
                self._latest = number
                ps += self._in_node
        if not inside or _grads():  # with gradients, backward makes a part of forward again
            ps += self._python
        self.now += ps
        self.pending += ps

    def whole(self) -> None:
        """It issues an operation whose parts are not seen."""
        self.issue(self.ps["operation"] + (self._in_node if in_backward() else self._python))

    def generated(self, kind: str) -> None:
        """It issues a kernel of this class in generated code, whose Python calls the kernel, or the operation of a
        library; in a graph, nothing."""
        if scratch.graphed():
            return
        library = LIBRARIES.get(kind)
        self.issue(self.ps["generated"] if library is None else self._python + self.ps["operation"] + self.ps[library])

    def launches(self) -> None:
        """It launches a kernel, unless that is part of a graph."""
        if not self.submits and not scratch.graphed():
            self.issue(self.launch)

    def own(self, known: Any) -> None:
        """It runs an operation on its own tensors."""
        if self._class(known) and _ident() == self._thread:
            self.issue(self.ps["own"])

    def _class(self, known: Any) -> int:
        if known.is_free:
            return 0
        if known.is_quiet:
            return self.ps["view"]
        name, ps = known.name, self.ps["operation"]
        if "attention" in name or "convolution" in name:
            return ps + self.ps["plan"] * (2 if "backward" in name else 1)
        if known.counts is not None:
            return ps + self.ps["product"]
        if name.endswith(("_norm", "_norm_backward")) and name.startswith(("native_", "_fused_")):
            return ps + self.ps["norm"]
        return ps

    def stages(self, nbytes: int) -> None:
        """It copies so many bytes between pageable memory and memory that the device reads."""
        ps = round(nbytes / self._staging * 1000) if self._staging else 0
        self.staged += ps
        self.issue(ps)

    def backward(self) -> None:
        """It calls backward."""
        self.issue(self.ps["backward"])

    def steps(self, optimizer: Any) -> None:
        """It calls an optimizer's step."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        self.issue(self.ps["optimizer"] + count * self.ps["parameter"])

    def waits(self, until: int) -> None:
        """It waits for the device, which is there at `until`."""
        self.now = max(self.now, until)
        self.issue(self.ps["synchronize"])

    @contextmanager
    def submission(self) -> Iterator[None]:
        """All launches meanwhile are one, as those of a graph are."""
        self.issue(self.launch)
        self.submits = True
        try:
            yield
        finally:
            self.submits = False


def of(machine: Machine) -> Host | None:
    """The host of a machine; None: it takes no time."""
    if machine.compute is None:
        return None
    values = machine.compute.values
    return Host({path.removeprefix("host."): value for path, value in values.items() if path.startswith("host.")})
