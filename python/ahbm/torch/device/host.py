"""What the host of a rank takes to issue what its device does.

Eager PyTorch walks through Python, the dispatcher and autograd before a kernel is launched: where kernels are short,
the device waits for that. An operation takes a time by its class, and a launch a time for each of its kernels. What is
seen is what torch's dispatcher is given below autograd, so Python and autograd's share are terms of it: `python` what
lies before an operation that Python asks for, `node` what autograd's engine takes for each node that it evaluates.

The figures are those of `compute.host` in a machine, microseconds each; machines without that section have a host that
takes no time. The time of the script's own Python, of its data loaders and of operations on tensors of the host beyond
their dispatch is not known, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from ahbm.torch.device.memory import in_backward

if TYPE_CHECKING:
    from ahbm._core import Machine

FEW = 5
"""Operands of an operation that are not counted one by one."""
QUEUE = 1024
"""Launches by which the host may be ahead of the device: as many as a channel of CUDA has."""
_ACCUMULATES = (1 << 64) - 1
"""The number that autograd gives to every node that accumulates a gradient."""
_node: Any = torch._C._current_autograd_node
_grads = torch.is_grad_enabled


@dataclass(frozen=True)
class Costs:
    """What the host takes, in us. The usual ones were fitted to steps on an H200 beside a Xeon, PyTorch 2.11."""

    operation: float = 5.7
    """Through the dispatcher to a kernel of the device, its results' memory included."""
    launch: float = 9.0
    """A kernel, from its operation's code to the driver."""
    view: float = 2.9
    """An operation that starts no kernel."""
    python: float = 6.2
    """What lies before an operation in forward: Python's part, modules, autograd's part there."""
    node: float = 12.8
    """A node of autograd in backward, beside its operations."""
    backward: float = 120.0
    """A call of backward: autograd's thread is woken, and wakes the caller."""
    optimizer: float = 76.0
    """A step of an optimizer."""
    parameter: float = 1.8
    """A parameter in it: its gradient, its state, `zero_grad`."""
    tensor: float = 0.41
    """A tensor of a list that an operation is given."""
    on_host: float = 3.4
    """An operation on tensors of the host."""
    synchronize: float = 9.7
    """Waiting for the device, beside the wait."""
    product: float = 6.7
    """A product: the choice of a kernel."""
    plan: float = 36.0
    """A convolution or an attention, forward or for a gradient: the plan of cuDNN."""
    norm: float = 11.0
    """A normalization: several results, statistics."""
    collective: float = 30.0
    """A call of a collective."""
    staging_gbs: float = 12.0
    """GB/s at which the host copies pageable memory to where the device can read it."""


class Host:
    """The host of a rank; `issued` by the meter's clock. Times are ps."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        ps = {field.name: round(getattr(costs, field.name) * 1e6) for field in fields(costs)}
        self.launch, self.collective, self.synchronize = ps["launch"], ps["collective"], ps["synchronize"]
        self.now = 0
        """Where it is: at the end of what it has issued, and of what it has waited for."""
        self.pending = 0
        """What it has done since the latest node of the journal."""
        self.submits = False
        """Whether what it issues now is part of one submission."""
        self._ps = ps
        self._takes: dict[Any, int] = {}
        self._latest = 0
        """The node of autograd that was evaluated last."""

    def issue(self, ps: int) -> None:
        """It is busy for so long."""
        self.now += ps
        self.pending += ps

    def operation(self, known: Any, given: list[torch.Tensor], fused: bool) -> None:
        """It issues an operation of the device. `fused`: within code that was generated."""
        ps = self._takes.get(known)
        if ps is None:
            ps = self._takes[known] = self._of(known)
        if fused:
            self.issue(0 if known.is_quiet or known.fuses else ps)
            return
        if not ps:
            return
        if len(given) > FEW:
            ps += self._ps["tensor"] * (len(given) - FEW)
        if not in_backward():
            ps += self._ps["python"]
        else:
            node = _node()
            number = -1 if node is None else node._sequence_nr()
            if number == _ACCUMULATES or number != self._latest:
                self._latest = number
                ps += self._ps["node"]
            if _grads():  # a part of forward is made again
                ps += self._ps["python"]
        self.now += ps
        self.pending += ps

    def on_host(self, known: Any) -> None:
        """It runs an operation on its own tensors."""
        if not known.is_free:
            self.issue(self._ps["on_host"])

    def _of(self, known: Any) -> int:
        if known.is_free or known.is_call:
            return 0
        if known.is_quiet:
            return self._ps["view"]
        name, ps = known.name, self._ps["operation"]
        if "attention" in name or "convolution" in name:
            ps += self._ps["plan"] * (2 if "backward" in name else 1)
        elif known.counts is not None:
            ps += self._ps["product"]
        elif name.endswith(("_norm", "_norm_backward")) and not name.startswith(("_foreach", "linalg")):
            ps += self._ps["norm"]
        return ps

    def copied(self, nbytes: int, pinned: bool) -> None:
        """It has so many bytes copied from or to its memory."""
        if not pinned:
            self.issue(round(nbytes / self.costs.staging_gbs * 1000))

    def backward(self) -> None:
        """It calls backward."""
        self.issue(self._ps["backward"])

    def steps(self, optimizer: Any) -> None:
        """It calls an optimizer's step."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        self.issue(self._ps["optimizer"] + count * self._ps["parameter"])

    @contextmanager
    def submission(self) -> Iterator[None]:
        """What it issues meanwhile is one launch, as that of a graph is."""
        self.issue(self.launch)
        self.submits = True
        try:
            yield
        finally:
            self.submits = False


def of(machine: Machine) -> Host | None:
    """The host of a machine; None for one whose host takes no time."""
    found = getattr(machine, "compute", None)
    return None if found is None else Host(Costs())
