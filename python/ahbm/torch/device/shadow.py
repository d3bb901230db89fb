"""What `torch.compile` would make of the kernels that a script starts one by one: notes on the nodes of a rank.

Operations of forward and backward are given to the rules for generated code (`fusing`) beside their own kernels. What
is fused is noted at the last nodes of its operations, and that the others would be gone. Optimizers remain as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ahbm.torch.device.fusing import Fusing, Group
from ahbm.torch.device.memory import in_backward

if TYPE_CHECKING:
    from ahbm.kernels import Kernel
    from ahbm.torch.journal import Event

FACT = "with_compile"
"""A fact of a kernel's node: `GONE`, `SAME` or, as JSON, bytes, type, class and dimensions of the one in its place."""
GONE, SAME = "", "="
_grads = torch.is_grad_enabled


class Shadow:
    """See above."""

    def __init__(self) -> None:
        self._fusing = Fusing(lambda work: None)
        self._of: dict[int, list[Event]] = {}
        """By the number of a kernel that is generated, the nodes of its operations."""
        self._inside = False

    def take(
        self, name: str, kernels: Sequence[Kernel], given: Sequence[torch.Tensor], made: Any, nodes: list[Event]
    ) -> None:
        """An operation has started these kernels, whose nodes these are."""
        inside = in_backward()
        if inside != self._inside:
            # What forward has calculated element by element is calculated again in backward.
            self.end(() if inside else None)
            self._inside = inside
        if not inside and not _grads() and name.endswith("_"):  # of an optimizer
            self.end()
            return
        group = self._fusing.take(name, kernels, given, made)
        if group is not None:
            self._of.setdefault(group.number, []).extend(nodes)

    def end(self, kept: Sequence[torch.Tensor] | None = None) -> None:
        """The code that is generated ends here; `kept`: as for `Fusing.flush`."""
        if not self._fusing.groups:
            return
        of, self._of = self._of, {}
        for group, works in self._fusing.end(kept):
            self._note(group, works, of.get(group.number, []))

    @staticmethod
    def _note(group: Group, works: Sequence[tuple[Any, ...]], nodes: Sequence[Event]) -> None:
        if not group.elements:
            for node in nodes:
                node.facts[FACT] = SAME
            return
        if len(works) > len(nodes):  # one operation, of which torch has one kernel
            return
        gone = len(nodes) - len(works)
        for node in nodes[:gone]:
            node.facts[FACT] = GONE
        for node, (_, _, nbytes, arithmetic, _, kind, dims) in zip(nodes[gone:], works, strict=True):
            node.facts[FACT] = json.dumps([nbytes, arithmetic, kind, dims])
