"""What a script could do otherwise, as changes of the nodes that ranks have kept: the changed job is replayed.

What the machine could have otherwise is asked of `what_if`; see `answer`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ahbm.base.words import lasts
from ahbm.torch.device import batches, scratch
from ahbm.torch.device.host import LIBRARIES
from ahbm.torch.device.host import of as of_machine
from ahbm.torch.device.shadow import FACT, GONE, SAME

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.torch.journal import Node

TF32 = "products of f32 in TF32 (torch.set_float32_matmul_precision)"
PINNED = "copies from pinned memory (pin_memory=True, non_blocking=True)"
COMPILED = "the model compiled (torch.compile)"
REST = "what is not compiled yet compiled as well (torch.compile)"
GRAPH = "the step as one CUDA graph, if it can be captured (torch.cuda.graph)"
FUSED = "the optimizer in one kernel for many parameters (fused=True)"
ADAM = ("_foreach_lerp_", "_foreach_mul_", "_foreach_addcmul_", "_foreach_sqrt", "_foreach_div_", "_foreach_add_",
        "_foreach_addcdiv_")  # fmt: skip
"""Operations of Adam and AdamW on lists of parameters, without a fused kernel (torch/optim/adam.py)."""
MAXIMUM = "_foreach_maximum_"
"""Between them, of a variant of Adam."""
PASSES = 7
"""Times that a fused kernel of Adam reads or writes as many bytes as the parameters have: they, their gradients and
both averages are read, all but the gradients written."""


def _with(node: Node, facts: dict[str, Any], ps: int | None = None) -> Node:
    kind, name, deps, start, took, _ = node
    return kind, name, deps, start, took if ps is None else ps, list(facts.items())


def in_tf32(nodes: Sequence[Node]) -> list[Node]:
    """Products of f32 multiply in ten bits."""
    out = []
    for node in nodes:
        facts: dict[str, Any] = dict(node[5])
        if facts.get("num_ops") and facts.get("num_ops_dtype") == "f32":
            node = _with(node, {**facts, "num_ops_dtype": "tf32"})
        out.append(node)
    return out


def pinned(nodes: Sequence[Node]) -> list[Node]:
    """Memory that is copied to or from is pinned: the host does not copy it as well."""
    out = []
    for node in nodes:
        facts: dict[str, Any] = dict(node[5])
        if staged := facts.pop("pageable", 0):
            node = _with(node, facts, node[4] - staged)
        out.append(node)
    return out


def captured(nodes: Sequence[Node]) -> list[Node]:
    """The host issues all in one: what it did for each kernel takes nothing."""
    return [
        _with(node, dict(node[5]), 0) if any(key == "is_cpu_op" and value for key, value in node[5]) else node
        for node in nodes
    ]


def fused(nodes: Sequence[Node], tensor_ps: int = 0, optimizer_ps: int = 0) -> list[Node]:
    """Adam's operations on lists of parameters are one fused kernel, and one that counts steps. `tensor_ps`,
    `optimizer_ps`: what the host takes for each tensor of an operation, and to call an optimizer."""
    out = list(nodes)
    for scaling, runs in _adams(nodes):
        issue = _issue(nodes, scaling[0]) if scaling else None
        if issue is not None and nodes[issue][4] >= max(optimizer_ps, 1):
            runs = [scaling, *runs]  # weights decay; else it scales gradients that were clipped
        *before, last = runs
        of: list[dict[str, Any]] = [dict(nodes[number][5]) for number in last]
        tensors = sum(each["kernel_dims"][0] for each in of)
        counting = {"num_ops": 0, "tensor_size": 8 * tensors, "num_ops_dtype": "f32"}
        counting |= {"kernel_kind": "foreach", "kernel_dims": (tensors, tensors)}
        first = before[0][0]
        for number in (each for run in before for each in run):
            issue = _issue(nodes, number)
            if number == first:
                out[number] = _named("_foreach_add_", _with(nodes[number], counting))
                continue
            out[number] = _with(nodes[number], {"num_ops": 0, "tensor_size": 0}, 0)
            if issue is not None:
                out[issue] = _with(nodes[issue], dict(nodes[issue][5]), 0)
        for number, facts in zip(last, of, strict=True):
            # The last of Adam's operations reads and writes as many bytes as the parameters have four times.
            facts["tensor_size"] = facts["tensor_size"] * PASSES // 4
            out[number] = _named("_fused_adam_", _with(nodes[number], facts))
        issue = _issue(nodes, last[0])
        if issue is not None:
            out[issue] = _with(nodes[issue], dict(nodes[issue][5]), nodes[issue][4] + 2 * tensors * tensor_ps)
    return out


def compiled(nodes: Sequence[Node], ps: Mapping[str, int]) -> list[Node]:
    """Operations of forward and backward are generated code. `ps`: what the host takes, by the keys of `compute.host`
    without their unit."""
    out = list(nodes)
    for number, node in enumerate(nodes):
        facts: dict[str, Any] = dict(node[5])
        said = facts.pop(FACT, None)
        if said is None:
            continue
        launch = ps["launch"]
        if said == SAME:
            library = LIBRARIES.get(facts.get("kernel_kind", ""))
            took = launch + (ps["generated"] if library is None else ps["python"] + ps["operation"] + ps[library])
        elif said == GONE:
            facts, took = {"num_ops": 0, "tensor_size": 0}, 0
        else:
            nbytes, arithmetic, kind, dims = json.loads(said)
            facts = {"num_ops": 0, "tensor_size": nbytes, "num_ops_dtype": arithmetic}
            facts |= {"kernel_kind": kind, "kernel_dims": dims}
            took = launch + ps["generated"]
        out[number] = _with(node, facts)
        issue = _issue(nodes, number)
        # What takes as long as a call of backward is one, or waits.
        if issue is not None and nodes[issue][4] < ps["backward"]:
            out[issue] = _with(nodes[issue], dict(nodes[issue][5]), took)
    return out


def plain(nodes: Sequence[Node]) -> list[Node]:
    """Without the notes that changes are made by."""
    return [
        _with(node, {key: value for key, value in node[5] if key != FACT})
        if any(key == FACT for key, _ in node[5])
        else node
        for node in nodes
    ]


def _named(name: str, node: Node) -> Node:
    return node[0], name, *node[2:]


def _kernel(node: Node) -> bool:
    facts: dict[str, Any] = dict(node[5])
    return node[0] == "COMP_NODE" and len(facts.get("kernel_dims", ())) > 1


def _issue(nodes: Sequence[Node], number: int) -> int | None:
    """What the host does before a kernel."""
    of = [dep for dep in nodes[number][2] if ("is_cpu_op", 1) in nodes[dep][5]]
    return of[-1] if of else None


def _adams(nodes: Sequence[Node]) -> Iterator[tuple[list[int], list[list[int]]]]:
    """The kernels of each update of Adam's, operation by operation, and those before that multiply lists, if any."""
    kernels = [number for number, node in enumerate(nodes) if _kernel(node)]
    runs = [list(run) for _, run in groupby(kernels, key=lambda number: nodes[number][1])]
    names = [nodes[run[0]][1] for run in runs]
    for at in range(len(runs)):
        after, found = at, list[list[int]]()
        for name in ADAM:
            if after < len(runs) and names[after] == MAXIMUM:
                found.append(runs[after])
                after += 1
            if after == len(runs) or names[after] != name:
                break
            found.append(runs[after])
            after += 1
        else:
            yield runs[at - 1] if at and names[at - 1] == ADAM[1] else [], found


@dataclass
class Change:
    """What a change of the machine or of the algorithms gives."""

    what: str
    latency_ns: float

    @classmethod
    def of(cls, what: str, latency_ns: float, steps: int) -> Change:
        """A change of the script. Of twice the batch, half of a step is what a step of today's batch is."""
        if what != batches.TWICE:
            return cls(what, latency_ns)
        return cls(f"{what}, whose step takes {lasts(latency_ns / max(steps, 1))}, for half of it", latency_ns / 2)


CHANGES: dict[str, Callable[[Sequence[Node]], list[Node]]] = {TF32: in_tf32, PINNED: pinned, GRAPH: captured}
"""By what they are called in an answer."""


def changed(ranks: Sequence[Sequence[Node]], machine: Machine | None = None) -> list[tuple[str, list[list[Node]]]]:
    """The changes that would change something, with the nodes of every rank after each. `machine`: whose host it is."""
    host = None if machine is None else of_machine(machine)
    ps = {} if host is None else host.ps
    changes = [*CHANGES.items(), (FUSED, lambda nodes: fused(nodes, ps.get("tensor", 0), ps.get("optimizer", 0)))]
    if ps and any(key == FACT and value == GONE for nodes in ranks for node in nodes for key, value in node[5]):
        changes.append((REST if scratch.compiled() else COMPILED, lambda nodes: compiled(nodes, ps)))
    before = [plain(nodes) for nodes in ranks]
    found = []
    for what, change in changes:
        after = [plain(change(nodes)) for nodes in ranks]
        if after != before:
            found.append((what, after))
    return found
