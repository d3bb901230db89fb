"""What a rank's device does in its iterations, and how much of the machine's peak that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ahbm.kernels.touched import LOSSES

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.torch.journal import Node


def rows(facts: Mapping[str, Any]) -> int:
    """Those of a kernel that goes by rows."""
    dims: Sequence[int] = facts.get("kernel_dims") or (0,)
    return dims[0]


def columns(facts: Mapping[str, Any]) -> int:
    """Those of a kernel that goes by rows."""
    dims: Sequence[int] = facts.get("kernel_dims") or ()
    return dims[1] if len(dims) > 1 else 0


@dataclass(frozen=True)
class Work:
    """Of one rank."""

    kernels: int = 0
    """Those that were started, copies from and to the host included."""
    operations: dict[str, int] = field(default_factory=dict)
    """Per type that they are done in, as torch counts them."""
    tokens: int = 0
    """Rows that models looked up in their widest tables, for narrower ones are no embeddings of tokens (T5's biases by
    distance). Of tables that are read one after the other, with no product between, those of the one that is read most
    count, for a model adds rows of several for each token."""
    samples: int = 0
    """Rows that losses were taken of."""

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Work:
        """Of the nodes of a journal."""
        kernels, tokens, samples, looked_up = 0, 0, 0, 0
        operations = dict[str, int]()
        nodes = list(nodes)
        widest = max((columns(dict(node[5])) for node in nodes if node[1] == "embedding"), default=0)
        for kind, name, _, _, _, described in nodes:
            facts: dict[str, Any] = dict(described)
            if kind != "COMP_NODE" or facts.get("is_cpu_op"):
                continue
            kernels += 1
            if done := facts.get("num_ops", 0):
                of = facts.get("num_ops_dtype", "f16")
                operations[of] = operations.get(of, 0) + done
                tokens, looked_up = tokens + looked_up, 0
            elif name == "embedding" and columns(facts) == widest:
                looked_up = max(looked_up, rows(facts))
            elif name in LOSSES:
                samples += rows(facts)
        return cls(kernels, operations, tokens + looked_up, samples)

    @property
    def flops(self) -> int:
        """Of all types."""
        return sum(self.operations.values())

    def at_peak_ns(self, machine: Machine) -> float:
        """What the operations would take at the peak of their types."""
        starts = machine.roofline.launch_ps
        each = (machine.kernel_ps("", done, 0, arithmetic=of) - starts for of, done in sorted(self.operations.items()))
        return sum(each) / 1000
