"""Measured operations of one accelerator: a trace of PyTorch's profiler, or a table of kernels. What is read comes from
strangers."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from ahbm._core import Profile, is_pytorch_trace, read_profile, unpacked
from ahbm.base.load import load_bytes
from ahbm.calibrate.readers.size import MOST_LINE, refused
from ahbm.errors import FormatError, Site
from ahbm.kernels import Flags, Kernel, Tensor, arguments, describe, known
from ahbm.kernels.model import ITEMSIZES

MOST_BYTES = 1 << 26
"""Of a table, inflated."""
MOST_ROWS = 1 << 18
SLOWEST_US = 1e9
LARGEST = 1 << 40
"""Of a dimension."""
MOST_AXES, MOST_LISTED = 16, 4096
_WIDEST = 1 << 63
_TENSOR_CORES = ("tf32", "s1688", "s16816tf32")
"""What names of kernels of f32 say that multiply in TF32: kernels of half precision that say so have other operands."""
_CROSSING = ("HtoD", "DtoH", "HostToDevice", "DeviceToHost")
"""What names of copies say that go over the link to the host."""
_LISTS = ("TensorList", "OptionalTensorList")
KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
"""What an operation states of its operands."""


@dataclass(frozen=True)
class Measured:
    """Kernels of one operation, as often as they were measured."""

    name: str
    """The operation."""
    kernels: tuple[Kernel, ...]
    us: float
    """What they take together: the median of all times."""
    count: int = 1

    @cached_property
    def kind(self) -> str:
        """The class of the kernel that moves or computes the most."""
        return max(self.kernels, key=lambda each: (each.operations, each.nbytes)).kind


@dataclass(frozen=True)
class Operations:
    """What a file says of one accelerator."""

    name: str
    """The file's name."""
    digest: str
    """The first 16 hex digits of its SHA-256."""
    device: str
    units: int | None
    rows: tuple[Measured, ...]
    covered: float = 1.0
    """The part of the time of all kernels that the rows have."""
    notes: tuple[str, ...] = ()
    profile: Profile | None = None
    """The trace, if it is one."""


def sort(path: str | Path) -> str:
    """What a file is by its beginning: "trace", "kernels" (a table of them) or "other"."""
    if is_pytorch_trace(str(path)):
        return "trace"
    try:
        if not Path(path).is_file():  # a pipe is read once
            return "other"
        lines = _head(path).decode("utf-8", "replace").lstrip("\ufeff").splitlines()
    except OSError:
        return "other"
    head = next((line.strip() for line in lines if not line.startswith("#")), "")
    return "kernels" if head.startswith("device,") and head.endswith("latency_us") else "other"


def read(path: str | Path, device: str | None = None) -> list[Operations]:
    """What a trace or a table says, by accelerator; `device`: of this one alone.

    Raises FormatError: AHBM-F183 for a trace that is none, F210 for no such table, F211 for rows that cannot be, F213
    for a file with no measured operation whose operands it states, or none of `device`; BudgetError.
    """
    if sort(path) == "trace":
        return [of_trace(path, device)]
    return of_table(path, device)


def of_trace(path: str | Path, device: str | None = None) -> Operations:
    """The operations of a profiler's trace, with the kernels that each launched. Raises as `read`."""
    profile = read_profile(str(path))
    name, units, _ = profile.device
    found = device or name or ""
    walk = _Walk(profile, units)
    rows = walk.rows()
    if not rows:
        raise FormatError(
            "AHBM-F213",
            f"{path} has no kernel of an operation that states its operands",
            sites=(Site("trace", str(path)),),
            hint="record it with torch.profiler.profile(record_shapes=True) on the accelerator",
        )
    digest = hashlib.sha256(repr([(row.name, row.us, row.count) for row in rows]).encode()).hexdigest()[:16]
    return Operations(
        Path(path).name,
        digest,
        found[:60],
        units,
        tuple(rows),
        walk.covered,
        tuple(walk.notes(Path(path).name)),
        profile,
    )


def of_operations(profile: Profile) -> dict[str, tuple[int, float]]:
    """The kernels of a trace by the operation that launched them, and us that they take together. An operation is the
    outermost one that is known, else the innermost; kernels of none have their own names."""
    names = [name.rpartition("::")[2] for name, _ in profile.signatures]
    is_known = [known(name) for name in names]
    labels: list[int] = []
    for number, parent, *_ in profile.operations.tolist():
        above = labels[parent] if parent >= 0 else -1
        labels.append(above if above >= 0 and is_known[above] else number)
    kernels, found = profile.names, dict[str, tuple[int, float]]()
    for of, name, _, _, ps, _ in profile.kernels.tolist():
        label = names[labels[of]] if of >= 0 else kernels[name]
        count, us = found.get(label, (0, 0.0))
        found[label] = count + 1, us + ps / 1e6
    return found


class _Walk:
    """From operations of the host to what they launched.

    An operation that is known has the kernels of all operations within it, where these are as many as it launches; else
    those within it are looked at one by one. Where one within it launches them all, that one states them best: the
    result of a copy is among the operands of `copy_`, not of `_to_copy`.
    """

    def __init__(self, profile: Profile, units: int | None) -> None:
        self.signatures = profile.signatures
        self.names = profile.names
        self.operations = profile.operations
        self.kernels = profile.kernels
        self.units = units or 132
        self.took = self.kernels[:, 4]
        self._described: dict[tuple[int, bool], tuple[bool, tuple[Kernel, ...]]] = {}
        self._left: Counter[str] = Counter()
        self._rows: defaultdict[tuple[str, tuple[Kernel, ...]], list[int]] = defaultdict(list)
        self._tf32 = [any(text in name.lower() for text in _TENSOR_CORES) for name in self.names]
        self._crosses = [any(text in name for text in _CROSSING) for name in self.names]

    def rows(self) -> list[Measured]:
        """The operations by name and kernels, those that took the longest first."""
        count = len(self.operations)
        own: list[list[int]] = [[] for _ in range(count)]
        for at, of in enumerate(self.kernels[:, 0].tolist()):
            if of >= 0:
                own[of].append(at)
        parents = self.operations[:, 1].tolist()
        within = [len(each) for each in own]
        inner: list[list[int]] = [[] for _ in range(count)]
        roots = []
        # An operation stands behind the one that it is part of.
        for at in range(count - 1, -1, -1):
            if parents[at] < 0:
                roots.append(at)
            else:
                within[parents[at]] += within[at]
                inner[parents[at]].append(at)
        pending = roots
        while pending:
            at = pending.pop()
            if not within[at]:
                continue
            launched = own[at] if within[at] == len(own[at]) else list(_all(at, own, inner))
            kernels = self._whole(at, launched)
            whole = [each for each in inner[at] if within[each] == len(launched)]
            if kernels is not None and not (whole and self._reaches(whole[0], within, inner, launched)):
                self._add(at, kernels, launched)
                continue
            if own[at]:
                self._add(at, self._kernels(at, own[at])[1], own[at])
            pending += inner[at]
        found = [
            Measured(name, kernels, median(taken) / 1e6, len(taken))
            for (name, kernels), taken in self._rows.items()
            if median(taken) > 0
        ]
        return sorted(found, key=lambda row: (-row.us * row.count, row.name, row.kernels))

    def _whole(self, at: int, launched: Sequence[int]) -> tuple[Kernel, ...] | None:
        """The kernels of an operation, if it is known and has as many as were launched."""
        is_known, kernels = self._kernels(at, launched)
        return kernels if is_known and len(kernels) == len(launched) else None

    def _reaches(self, at: int, within: Sequence[int], inner: Sequence[Sequence[int]], launched: Sequence[int]) -> bool:
        """Whether an operation, or the one within it that launches all, has as many kernels as were launched."""
        while True:
            if self._whole(at, launched) is not None:
                return True
            whole = [each for each in inner[at] if within[each] == len(launched)]
            if not whole:
                return False
            at = whole[0]

    @property
    def covered(self) -> float:
        """The part of the time of kernels that is in rows."""
        return 1 - sum(self._left.values()) / max(int(self.took.sum()), 1)

    def notes(self, name: str) -> Iterator[str]:
        """What is left out."""
        of_none = int(self.took[self.kernels[:, 0] < 0].sum())
        if of_none:
            self._left["kernels of no operation"] += of_none
        most = [f"{each} {100 * ps / self.took.sum():.0f} %" for each, ps in self._left.most_common(4)]
        if self._left and self.covered < 0.995:
            yield f"{name}: {100 * self.covered:.0f} % of the time of kernels is fitted; left out: {', '.join(most)}"

    def _add(self, at: int, kernels: tuple[Kernel, ...], launched: Sequence[int]) -> None:
        name = self.signatures[self.operations[at, 0]][0]
        ps = int(self.took[launched].sum())
        if any(self._crosses[self.kernels[each, 1]] for each in launched):
            self._left["copies between device and host"] += ps
        elif kernels:
            self._rows[name, kernels].append(ps)
        else:
            self._left[name[:60]] += ps

    def _kernels(self, at: int, launched: Sequence[int]) -> tuple[bool, tuple[Kernel, ...]]:
        """Whether an operation is known, and what it launches; TF32 where a kernel that it launched says so."""
        number = int(self.operations[at, 0])
        tf32 = any(self._tf32[self.kernels[each, 1]] for each in launched)
        found = self._described.get((number, tf32))
        if found is None:
            name, stated = self.signatures[number]
            flags = Flags(tf32_products=tf32, tf32_convolutions=tf32, units=self.units)
            found = self._described[number, tf32] = _described(name, stated, flags)
        return found


def _all(at: int, own: Sequence[Sequence[int]], inner: Sequence[Sequence[int]]) -> Iterator[int]:
    pending = [at]
    while pending:
        at = pending.pop()
        yield from own[at]
        pending += inner[at]


def _described(name: str, stated: str, flags: Flags) -> tuple[bool, tuple[Kernel, ...]]:
    space, _, plain = name.rpartition("::")
    if space != "aten" or plain.startswith("_cudnn_rnn"):  # a kernel for each step of a sequence, however long
        return False, ()
    facts = json.loads(stated)
    # The types of a list of tensors are not stated, and with them the bytes.
    if not _sound(facts) or any(kind in _LISTS for kind in facts.get("Input type", [])):
        return known(plain), ()
    given = arguments(facts)
    return known(plain), () if given is None else _fitting(describe(plain, given, flags=flags))


def _sound(facts: Mapping[str, Any]) -> bool:
    """Whether what is stated of operands has the form that the profiler gives it."""
    if not all(isinstance(facts.get(key, []), list) and len(facts.get(key, [])) <= MOST_LISTED for key in KEYS):
        return False
    numbers = [*facts.get("Input Dims", []), *facts.get("Input Strides", [])]
    texts = [*facts.get("Input type", []), *facts.get("Concrete Inputs", [])]
    return all(isinstance(each, list) and _shape(each) for each in numbers) and all(
        isinstance(each, str) and len(each) <= MOST_BYTES for each in texts
    )


def _shape(given: list[Any]) -> bool:
    if given and all(isinstance(each, list) for each in given):
        return len(given) <= MOST_LISTED and all(_shape(each) for each in given if each) and _depth(given) < 3
    return len(given) <= MOST_AXES and all(type(each) is int and abs(each) <= LARGEST for each in given)


def _depth(given: Any) -> int:
    return 1 + max((_depth(each) for each in given), default=0) if isinstance(given, list) else 0


def _fitting(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Kernels that say what they do, in numbers that a machine takes; else none."""
    if not any(each.operations or each.nbytes for each in kernels):
        return ()
    return kernels if all(0 <= each.operations < _WIDEST and 0 <= each.nbytes < _WIDEST for each in kernels) else ()


_COLUMNS = ("device", "op", "d0", "d1", "d2", "d3", "latency_us")
_CONVOLUTION = ("device", "batch", "in_channels", "out_channels", "kernel", "size", "stride", "padding", "latency_us")
_ROWS: dict[str, tuple[str, Callable[[Tensor, Tensor], tuple[Any, ...]]]] = {
    "ln": ("native_layer_norm", lambda x, row: (x, (row.shape[0],), row, row, 1e-5)),
    "softmax": ("_softmax", lambda x, row: (x, -1, False)),
    **{name: (name, lambda x, row: (x, x)) for name in ("add", "mul", "div", "pow")},
    **{f"{name}u": (name, lambda x, row: (x, 2.0)) for name in ("add", "mul", "div", "pow")},
    **{name: (name, lambda x, row: (x,)) for name in ("relu", "gelu", "tanh", "sigmoid", "exp", "sqrt")},
}
"""Operations of rows: torch's name, and its arguments by the tensor and one of its rows."""
OPS = ("bmm", "linear", *_ROWS)


def of_table(path: str | Path, device: str | None = None) -> list[Operations]:
    """The kernels of a table by accelerator. Raises as `read`."""
    origin = str(path)
    content = _content(path)
    lines = content.splitlines()
    if len(lines) > MOST_ROWS:
        raise refused("AHBM-F210", f"more than {MOST_ROWS} rows", origin)
    if any(len(line) > MOST_LINE for line in lines):
        raise refused("AHBM-F210", f"a line of more than {MOST_LINE} characters", origin)
    remarks = sum(1 for _ in takewhile(lambda line: line.startswith("#"), lines))
    reader = csv.DictReader(lines[remarks:])
    columns = tuple(each.strip() for each in reader.fieldnames or ())
    typed = tuple(each for each in columns if each != "dtype")
    if typed not in (_COLUMNS, _CONVOLUTION):
        raise refused(
            "AHBM-F210",
            "it is no table of kernels",
            origin,
            f"its columns are {','.join(_COLUMNS)}, or those of convolutions",
        )
    reader.fieldnames = columns
    kernels = _convolution if typed == _CONVOLUTION else _kernel
    times: defaultdict[str, defaultdict[tuple[str, tuple[Kernel, ...]], list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for line, row in enumerate(reader, 2 + remarks):
        of = str(row.get("device") or "").strip()[:60]
        if device is None or device.lower() in of.lower():
            name, launched = kernels(row, origin, line)
            times[of][name, launched].append(_us(row, origin, line))
    if not times:
        what = f"it has no row of {device!r}" if device else "it has no rows"
        raise refused("AHBM-F213", what, origin)
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return [
        Operations(
            Path(path).name,
            digest,
            of,
            None,
            tuple(Measured(name, launched, median(us), len(us)) for (name, launched), us in rows.items()),
        )
        for of, rows in times.items()
    ]


def _content(path: str | Path) -> str:
    try:
        content = load_bytes(path, MOST_BYTES)
        content = unpacked(content, MOST_BYTES + 1)
        text = content.decode("utf-8").lstrip("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FormatError("AHBM-F210", f"{path} cannot be read: {reason}") from error
    if len(content) > MOST_BYTES:
        raise refused("AHBM-F210", f"more than {MOST_BYTES} bytes", str(path))
    return text


def _head(path: str | Path) -> bytes:
    return unpacked(load_bytes(path, MOST_BYTES), MOST_LINE)


def _us(row: Mapping[str, str | None], origin: str, line: int) -> float:
    text = str(row.get("latency_us"))
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not isfinite(found) or not 0 < found <= SLOWEST_US:
        raise refused("AHBM-F211", f"a time that cannot be: {text[:60]!r} us", origin, line=line)
    return found


def _numbers(row: Mapping[str, str | None], keys: Sequence[str], origin: str, line: int) -> list[int]:
    found = []
    for key in keys:
        text = str(row.get(key)).strip()
        if not text.isdecimal() or len(text) > 13 or int(text) > LARGEST:
            raise refused("AHBM-F211", f"{key} is {text[:60]!r}, no dimension", origin, line=line)
        found.append(int(text))
    return found


def _dtype(row: Mapping[str, str | None], origin: str, line: int) -> str:
    dtype = str(row.get("dtype") or "float32").strip()
    if dtype not in ITEMSIZES:
        raise refused("AHBM-F211", f"{dtype[:60]!r} is no type of torch", origin, line=line)
    return dtype


def _kernel(row: Mapping[str, str | None], origin: str, line: int) -> tuple[str, tuple[Kernel, ...]]:
    """What a row of `_COLUMNS` launches."""
    op, dtype = str(row.get("op")).strip(), _dtype(row, origin, line)
    if op in ("bmm", "linear"):
        # An M x K by a K x N: tables of NeuSight write the inner dimension third. Their times say so: of 64, it halves
        # the work, and an N of 64 costs as much as one of 128.
        b, m, k, n = _numbers(row, ("d0", "d1", "d2", "d3"), origin, line)
        if op == "bmm":
            args: tuple[Any, ...] = (Tensor((b, m, k), dtype), Tensor((b, k, n), dtype))
            return _launched("bmm", args, origin, line)
        weight = Tensor((k, n), dtype, (1, k))
        return _launched("addmm", (Tensor((n,), dtype), Tensor((b * m, k), dtype), weight), origin, line)
    if op not in _ROWS:
        raise refused("AHBM-F211", f"unknown operation {op[:60]!r}", origin, f"one of {', '.join(OPS)}", line)
    name, arranged = _ROWS[op]
    shape = tuple(_numbers(row, ("d0", "d1"), origin, line))
    return _launched(name, arranged(Tensor(shape, dtype), Tensor(shape[1:], dtype)), origin, line)


def _convolution(row: Mapping[str, str | None], origin: str, line: int) -> tuple[str, tuple[Kernel, ...]]:
    """What a row of `_CONVOLUTION` launches: forward, with as many rows as columns, in f32 without TF32."""
    dtype = _dtype(row, origin, line)
    batch, inner, outer, kernel, size, stride, padding = _numbers(row, _CONVOLUTION[1:-1], origin, line)
    x, weight = Tensor((batch, inner, size, size), dtype), Tensor((outer, inner, kernel, kernel), dtype)
    steps = (stride, stride), (padding, padding), (1, 1)
    return _launched("convolution", (x, weight, None, *steps, False, (0, 0), 1), origin, line)


def _launched(name: str, args: tuple[Any, ...], origin: str, line: int) -> tuple[str, tuple[Kernel, ...]]:
    found = _fitting(describe(name, args, flags=Flags(tf32_convolutions=False)))
    if not found:
        raise refused("AHBM-F211", f"an operation {name} without work", origin, line=line)
    return name, found
