"""Kernels of code that `torch.compile` has generated: chains of elements and reductions are one kernel each.

As inductor's scheduler: an operation joins a kernel with which it shares a tensor, where both go over as many elements,
or over the rows that the kernel reduces, and all else that it reads is there before the kernel starts. What only the
kernel itself reads is not written; what is kept for backward alone is calculated again. Products, convolutions,
attention, sorts and tables remain kernels of their own. Reductions by columns are two kernels, the second one over
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ahbm.kernels import Kernel
from ahbm.kernels.touched import LOSSES, LOSSES_BACK
from ahbm.torch.device import marks

Work = tuple[str, int, int, str, bool, str, tuple[int, ...]]
"""A kernel's name, operations, bytes, the type of its operations, whether it copies from or to the host, its class and
its dimensions."""
MOST = 64
"""Operations of a kernel, as inductor's `max_fusion_size`."""
PARTS = 64
"""Parts of a reduction by columns."""
_ROWS = {"norm", "norm_backward", "softmax", "softmax_backward"}
_ELEMENTS = {"pointwise", "cast", "strided", "broadcast", "fill", "random", "loss_backward"}
_FUSED = _ROWS | _ELEMENTS | {"reduce", "norm_weights", "batch_norm", "batch_norm_backward"}
_APART = {"embedding", "embedding_dense_backward", "multinomial", "index_put", "index_put_", "_index_put_impl_"}
"""Operations of such kernels that are generated as ones of their own."""

Key = tuple[int, int, int]
"""Part of a storage: which, from where, how many elements."""


@dataclass
class _Value:
    """What an operation has made."""

    group: Group
    nbytes: int
    ref: StorageWeakRef
    needed: bool = False


@dataclass
class Group:
    """A kernel that is generated, or one of a library."""

    number: int
    elements: int = 0
    """Elements that it goes over; 0: of a library."""
    rows: int = 0
    """Rows that it reduces; 0: none."""
    columns: tuple[int, ...] = ()
    """Of a reduction that is not by rows: its dimensions."""
    names: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    arithmetic: str = "f16"
    reads: dict[Key, int] = field(default_factory=dict)
    makes: list[_Value] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    """Kernels that follow it, or those of a library."""


class Fusing:
    """What is generated until now and not yet told to the meter."""

    def __init__(self, tell: Callable[[Work], None]) -> None:
        self._tell = tell
        self.groups: list[Group] = []
        self._values: dict[int, _Value] = {}
        """By the storage, what was written to it last."""
        self._readers: dict[int, list[Group]] = {}

    def take(self, name: str, kernels: Sequence[Kernel], given: Sequence[torch.Tensor], made: Any) -> Group | None:
        """An operation of generated code that starts these kernels: the kernel that it is part of; None without any."""
        if not kernels:
            return None
        if name == "embedding_dense_backward":  # sums by atomics, without a sort
            added = Kernel("scatter", kernels[-1].dims[:2], 0, kernels[-1].nbytes)
            kernels = [kernels[0], added] if len(kernels) > 1 else kernels
        if name in LOSSES_BACK:
            given = [x for at, x in enumerate(given) if at != 1]
        outs = [x for x in (made if type(made) in (tuple, list) else (made,)) if isinstance(x, torch.Tensor)]
        if name in _APART or not all(each.kind in _FUSED for each in kernels):
            return self._library(name, kernels, given, outs)
        main = max(kernels, key=lambda each: each.nbytes)
        elements = max((x.numel() for x in (*given, *outs)), default=0)
        rows = next((each.dims[0] for each in kernels if each.kind in _ROWS), 0)
        columns = False
        if main.kind == "reduce":
            outer, _, inner = main.dims
            rows, columns = (outer, False) if inner == 1 and outer > 1 else (0, True)
        group = self._home(given, elements, rows, columns) or self._new(elements)
        group.elements = max(group.elements, elements)
        group.rows = group.rows or rows
        group.names.append(name)
        group.kinds |= {each.kind for each in kernels}
        group.arithmetic = main.arithmetic if main.arithmetic != "f16" else group.arithmetic
        if columns:
            group.columns = main.dims  # nothing else goes by its elements
            if main.dims[1] > MOST * PARTS:
                group.works.append(_second(name, main))
        for each in kernels:
            if each.kind == "norm_weights":
                part = Kernel("reduce", (1, PARTS, each.dims[1]))
                group.works += [_second(name, part)] * 2
        norms = [each for each in kernels if each.kind.startswith("batch_norm")]
        if norms:
            group.works.insert(0, _work(name, _statistics(norms, elements)))
        self._note(group, given, outs)
        return group

    def _home(self, given: Sequence[torch.Tensor], elements: int, rows: int, columns: bool) -> Group | None:
        """The latest kernel that an operation can be part of."""
        if columns:
            return None
        candidates: list[Group] = []
        for x in given:
            key = _storage(x)
            value = self._values.get(key)
            if value is not None:
                candidates.append(value.group)
            candidates += self._readers.get(key, ())
        for group in sorted({id(each): each for each in candidates}.values(), key=lambda each: -each.number):
            if not group.elements or len(group.names) >= MOST or group.columns:
                continue
            same = elements == group.elements and (not rows or not group.rows or rows == group.rows)
            if not same and not (group.rows and elements == group.rows):
                continue
            made = (self._values.get(_storage(x)) for x in given)
            if all(value is None or value.group.number <= group.number for value in made):
                return group
        return None

    def _new(self, elements: int) -> Group:
        group = Group(len(self.groups), elements)
        self.groups.append(group)
        return group

    def _library(
        self, name: str, kernels: Sequence[Kernel], given: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]
    ) -> Group:
        group = self._new(0)
        group.works = [_work(name, each) for each in kernels]
        if name not in LOSSES:  # they read little of their operands: no reason to write these
            for x in given:
                value = self._values.get(_storage(x))
                if value is not None:
                    value.needed = True
        self._note(group, (), outs)
        return group

    def _note(self, group: Group, given: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> None:
        """What it reads from outside, and makes."""
        for x in given:
            storage = _storage(x)
            value = self._values.get(storage)
            if value is not None and value.group is group:
                continue
            if value is not None:
                value.needed = True
            nbytes = x.numel() * x.element_size() if x.layout is torch.strided else 0
            group.reads[storage, x.storage_offset() if nbytes else 0, x.numel()] = nbytes
            self._readers.setdefault(storage, []).append(group)
        for x in outs:
            held = marks.storage(x)
            if held is not None:
                nbytes = x.numel() * x.element_size()
                value = self._values[held._cdata] = _Value(group, nbytes, StorageWeakRef(held))
                group.makes.append(value)

    def flush(self, kept: Sequence[torch.Tensor] | None = None) -> None:
        """Tells the meter all. `kept`: the tensors that are returned; None: all that are there are."""
        for _, works in self.end(kept):
            for work in works:
                self._tell(work)

    def end(self, kept: Sequence[torch.Tensor] | None = None) -> Iterator[tuple[Group, list[Work]]]:
        """All that was generated, each with the kernels that it is. `kept`: as for `flush`."""
        groups, values = self.groups, self._values
        self.groups, self._values, self._readers = [], {}, {}
        for x in kept or ():
            value = values.get(_storage(x))
            if value is not None:
                value.needed = True
        for group in groups:
            if group.elements:
                wrote = [v.nbytes for v in group.makes if v.needed or (kept is None and not v.ref.expired())]
                nbytes = sum(group.reads.values()) + sum(wrote)
                yield group, [_generated(group, nbytes), *group.works]
            else:
                yield group, group.works


def _storage(x: torch.Tensor) -> int:
    held = marks.storage(x)
    return id(x) if held is None else int(held._cdata)


def _work(name: str, of: Kernel) -> Work:
    return name, of.operations, of.nbytes, of.arithmetic, False, of.kind, of.dims


def _second(name: str, main: Kernel) -> Work:
    """What adds up the parts of a reduction."""
    outer, _, inner = main.dims
    return _work(name, Kernel("reduce", (outer, PARTS, inner), 0, 4 * (PARTS + 1) * outer * inner, "f32"))


def _statistics(norms: Sequence[Kernel], elements: int) -> Kernel:
    """The reduction to channels that a norm over a batch needs, before the kernel of its elements."""
    first, channels = norms[0], max(norms[0].dims[1], 1)
    reads, all_of_it = (2, 3) if first.kind.endswith("backward") else (1, 2)
    nbytes = first.nbytes if len(norms) > 1 else first.nbytes * reads // all_of_it
    return Kernel("reduce", (1, elements // channels, channels), 0, nbytes)


def _generated(group: Group, nbytes: int) -> Work:
    name = "triton_fused_" + "_".join(dict.fromkeys(name.strip("_") for name in group.names))[:64]
    rows = group.rows
    kind = "pointwise"
    dims: tuple[int, ...] = (group.elements,)
    if rows > 0:
        columns = max(group.elements // rows, 1)
        soft, back = any("softmax" in each for each in group.kinds), any("backward" in each for each in group.kinds)
        kind, dims = ("softmax" if soft else "norm") + "_backward" * back, (rows, columns)
        if not group.kinds & _ROWS:
            kind, dims = "reduce", (rows, columns, 1)
    elif group.columns:
        kind, dims = "reduce", group.columns
    return name, 0, nbytes, group.arithmetic, False, kind, dims
