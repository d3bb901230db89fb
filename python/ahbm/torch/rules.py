"""What a backend refuses, or leaves undefined, that a script asks for and does not get: nccl, gloo and mpi.

A rule is a row: the backend, what it is about, a test, what torch raises there and the source. What surely fails on
the cluster raises torch's own error, in its words and of its type, with a code and a hint of this package. What is
undefined there is said once. `--lenient` (AHBM_LENIENT=1) leaves all this out. Groups that a script makes with "ahbm"
have rows for what is torch's own alone: their backend has types, operators and tags of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from ahbm.ranks.blame import call_origin
from ahbm.torch import place
from ahbm.torch.failures import refused
from ahbm.torch.hazards import claim, say

LENIENT = "AHBM_LENIENT"
"""Environment variable: with 1, calls are as kind as backend "ahbm" is."""
_KINDS: Any = dist.ReduceOp.RedOpType
_BITWISE = (_KINDS.BAND, _KINDS.BOR, _KINDS.BXOR)
_NAMES = {
    torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.float16: "Half", torch.float32: "Float", torch.float64: "Double", torch.bool: "Bool",
    torch.bfloat16: "BFloat16", torch.complex32: "ComplexHalf", torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}  # fmt: skip
"""Types by torch's names in C++; of all others the name is that of Python, with capitals."""
_SIMPLE = {torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bool}
_FLOAT8 = {
    kind for name, kind in vars(torch).items() if name.startswith("float8_e4m3") or name.startswith("float8_e5m2")
}
_NCCL = _SIMPLE | {torch.bfloat16} | _FLOAT8
_GLOO = _SIMPLE | {torch.bfloat16}
_MPI = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64}


class Made(NamedTuple):
    """One call of a group."""

    name: str
    """The method of `Collectives`."""
    groups: int
    """Ranks of the group."""
    outs: tuple[Tensor, ...]
    ins: tuple[Tensor, ...]
    op: Any
    """torch's kind of the reduction; None where nothing is reduced."""
    splits: tuple[Sequence[int], Sequence[int]]
    """Of the output and the input of `all_to_all_single`."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All, those that are written first."""
        return self.outs + self.ins


PAIRED = ("send", "recv", "recv_anysource")
_COPIED = {"allgather": "outs", "allgather_coalesced": "outs", "reduce_scatter": "ins"}
"""Calls with lists of tensors, and which of them NCCL's backend copies, however they lie."""
_GROUPED = (*PAIRED, "alltoall", "all_to_all_single", "gather", "scatter", "gather_single")
"""Calls that NCCL's backend makes of sends and receives (torch/csrc/cuda/nccl.cpp)."""


@dataclass(frozen=True)
class Rule:
    """A row of the table."""

    backend: str
    what: str
    """What a script does."""
    test: Callable[[Made], str | None] | None
    """torch's words where a call does it; None: it is found elsewhere, in `Rules.backend` and in `hazards`."""
    raises: type[Exception] | None
    """torch's error; None: undefined there, and said once."""
    hint: str
    source: str
    """File and function of PyTorch, or a page of NCCL's."""


def type_name(dtype: torch.dtype) -> str:
    """torch's name in C++, as its errors have it."""
    known = str(dtype).removeprefix("torch.")
    return _NAMES.get(dtype, known.replace("uint", "UInt") if known.startswith("uint") else known.capitalize())


def _type(known: set[torch.dtype], words: str, *, grouped: bool | None) -> Callable[[Made], str | None]:
    """`grouped`: whether of calls that are made of sends and receives, or of the others; None: of all."""

    def test(made: Made) -> str | None:
        if grouped is not None and grouped != (made.name in _GROUPED):
            return None
        for x in made.tensors:
            if x.dtype not in known and not x.dtype.is_complex:
                return words + type_name(x.dtype)
        return None

    return test


def _bitwise_nccl(made: Made) -> str | None:
    return f"Cannot use ReduceOp.{made.op.name} with NCCL" if made.op in _BITWISE else None


def _bool_average(made: Made) -> str | None:
    of_bool = made.op == _KINDS.AVG and made.tensors[0].dtype is torch.bool
    return "Cannot use ReduceOp.AVG with boolean inputs" if of_bool else None


def _premul(made: Made) -> str | None:
    if made.op == _KINDS.PREMUL_SUM and not (made.tensors[0].is_floating_point() or made.tensors[0].is_complex()):
        return "PreMulSum Data type must be half, float, bfloat16 or double"
    return None


def _float8(made: Made) -> str | None:
    odd = made.op is not None and str(made.tensors[0].dtype).endswith("fnuz")
    return "Unsupported Float8 type for NCCL reduction" if odd else None


def _dense(x: Tensor) -> bool:
    """Whether NCCL's backend takes the memory as it lies: contiguous, perhaps with the channels last."""
    if x.layout is not torch.strided or x.is_contiguous():
        return True
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return last is not None and bool(x.is_contiguous(memory_format=last))


def _strided_nccl(made: Made) -> str | None:
    if made.name in _GROUPED:
        return None
    copied = _COPIED.get(made.name)
    looked_at = made.outs if copied == "ins" else made.ins if copied == "outs" else made.tensors
    return None if all(map(_dense, looked_at)) else "Tensors must be contiguous"


def _strided_paired(made: Made) -> str | None:
    if made.name not in _GROUPED or all(map(_dense, made.tensors)):
        return None
    return (
        "Detected non-contiguous tensor in P2P operations. It is user responsibility to guarantee that source and "
        "destination tensors have the same contiguity format."
    )


def _sparse_nccl(made: Made) -> str | None:
    sparse = any(x.layout is not torch.strided and x.layout is not torch.jagged for x in made.tensors)
    return "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead." if sparse else None


def _gathered_type(made: Made) -> str | None:
    if made.name == "all_gather_single" and made.outs[0].dtype != made.ins[0].dtype:
        return "output tensor must have the same type as input tensor"
    if made.name == "reduce_scatter_single" and made.outs[0].dtype != made.ins[0].dtype:
        return "input tensor must be the same type as the output tensor."
    return None


def _gathered_size(made: Made) -> str | None:
    if made.name == "all_gather_single" and made.ins[0].numel() * made.groups != made.outs[0].numel():
        return "output tensor size must be equal to world_size times input tensor size"
    if made.name == "reduce_scatter_single" and made.ins[0].numel() != made.outs[0].numel() * made.groups:
        return "input tensor must be the same size as output size times world size"
    return None


def _splits(made: Made) -> str | None:
    """`checkSplitSizes` and `computeLengthsAndOffsets`."""
    if made.name != "all_to_all_single":
        return None
    for x, sizes in zip((made.ins[0], made.outs[0]), reversed(made.splits), strict=True):
        rows = x.shape[0] if x.dim() else 1
        if not sizes:
            if rows % made.groups:
                return "Tensor's dim 0 does not divide equally across group size"
        elif len(sizes) != made.groups:
            return "Number of tensor splits not equal to group size"
        elif sum(sizes) != rows:
            return "Split sizes doesn't match total dim 0 size"
    return None


def _one_size(made: Made) -> str | None:
    """`assertTypeAndSizesMatch` of lists whose parts NCCL and gloo want alike."""
    if made.name == "gather" and made.outs:
        like, parts = made.ins[0], made.outs
    elif made.name == "scatter" and made.ins:
        like, parts = made.outs[0], made.ins
    else:
        return None
    for at, x in enumerate(parts):
        if x.dtype != like.dtype:
            return f"invalid tensor type at index {at} (expected {type_name(like.dtype)}, got {type_name(x.dtype)})"
        if x.shape != like.shape:
            return f"invalid tensor size at index {at} (expected {_shown(like)}, got {_shown(x)})"
    return None


def _shown(x: Tensor) -> str:
    return f"({', '.join(map(str, x.shape))})"


def _named(backend: str, test: Callable[[Made], str | None]) -> Callable[[Made], str | None]:
    def tests(made: Made) -> str | None:
        words = test(made)
        return None if words is None else f"ProcessGroup{backend}::{made.name}: {words}"

    return tests


def _gathered_gloo(made: Made) -> str | None:
    if made.name != "allgather":
        return None
    like = made.ins[0]
    for at, x in enumerate(made.outs):
        if x.shape != like.shape:
            return f"invalid tensor size at index {at} (expected {_shown(like)}, got {_shown(x)})"
    return None


def _average_gloo(made: Made) -> str | None:
    dtype = made.tensors[0].dtype if made.tensors else torch.float32
    if made.op == _KINDS.AVG and not dtype.is_floating_point and not dtype.is_complex:
        return f"result type Float can't be cast to the desired output type {type_name(dtype)}"
    return None


def _bitwise_gloo(made: Made) -> str | None:
    if made.op in _BITWISE and made.tensors[0].dtype.is_floating_point:
        return f"Cannot use ReduceOp.{made.op.name} with non-integral dtype"
    return None


def _scaled_gloo(made: Made) -> str | None:
    return "Unhandled ReduceOp" if made.op == _KINDS.PREMUL_SUM else None


def _collective_types_gloo(made: Made) -> str | None:
    return (
        None
        if made.name in PAIRED
        else _type(_GLOO, "Invalid scalar type", grouped=None)(made) and "Invalid scalar type"
    )


def _strided_gloo(made: Made) -> str | None:
    strided = made.name in PAIRED and not all(x.is_contiguous() for x in made.tensors)
    return "input tensor has to be contiguous" if strided else None


def _operator_mpi(made: Made) -> str | None:
    known = (None, _KINDS.SUM, _KINDS.PRODUCT, _KINDS.MIN, _KINDS.MAX)
    return None if made.op in known else f"map::at: MPI has no ReduceOp.{made.op.name}"


def _type_mpi(made: Made) -> str | None:
    words = _type(_MPI, "map::at: MPI has no type for ", grouped=None)(made)
    return words if made.tensors else None


def _strided_mpi(made: Made) -> str | None:
    return None if all(x.is_contiguous() for x in made.tensors) else "input tensor has to be contiguous"


def _calls(*names: str, words: str) -> Callable[[Made], str | None]:
    return lambda made: words if made.name in names else None


_NCCL_CPP = "ProcessGroupNCCL.cpp"
_GLOO_CPP = "ProcessGroupGloo.cpp"
_MPI_CPP = "ProcessGroupMPI.cpp"
_CAST = "send it as a type that the backend has: x.to(torch.int32), or x.view(torch.uint8) where nothing is reduced"
TABLE = (
    Rule("nccl", "int16, uint16 and other types that NCCL does not have, in a collective",
         _type(_NCCL, "Input tensor data type is not supported for NCCL process group: ", grouped=False),
         TypeError, _CAST, f"{_NCCL_CPP}, getNcclDataType"),
    Rule("nccl", "the same in send, recv, gather, scatter and all_to_all",
         _type(_NCCL, "Unconvertible NCCL type ", grouped=True), RuntimeError, _CAST,
         "torch/csrc/cuda/nccl.cpp, to_nccl_data_type"),
    Rule("nccl", "BAND, BOR and BXOR", _bitwise_nccl, ValueError,
         "gather the values and combine them, or use gloo for this group", f"{_NCCL_CPP}, getNcclReduceOp"),
    Rule("nccl", "AVG of bool", _bool_average, TypeError, "reduce a float", f"{_NCCL_CPP}, getNcclReduceOp"),
    Rule("nccl", "PREMUL_SUM of integers", _premul, TypeError, "reduce a float", f"{_NCCL_CPP}, getNcclReduceOp"),
    Rule("nccl", "a reduction of float8_e4m3fnuz or float8_e5m2fnuz", _float8, RuntimeError,
         "reduce float8_e4m3fn, float8_e5m2 or a wider type", f"{_NCCL_CPP}, isUnsupportedFloat8"),
    Rule("nccl", "a strided tensor in a collective (not in lists that torch copies)", _strided_nccl, ValueError,
         "pass x.contiguous()", f"{_NCCL_CPP}, check_gpu_single_tensor"),
    Rule("nccl", "a strided tensor in send, recv, gather, scatter and all_to_all", _strided_paired, None,
         "pass x.contiguous()", f"{_NCCL_CPP}, check_gpu_single_tensor"),
    Rule("nccl", "a sparse tensor", _sparse_nccl, None, "pass x.to_dense()", f"{_NCCL_CPP}, allreduce_sparse"),
    Rule("nccl", "all_gather_into_tensor and reduce_scatter_tensor of two types", _gathered_type, TypeError,
         "give both tensors one type", f"{_NCCL_CPP}, _allgather_base, _reduce_scatter_base"),
    Rule("nccl", "all_gather_into_tensor and reduce_scatter_tensor of sizes that do not fit", _gathered_size,
         ValueError,
         "one tensor has the group's size times the elements of the other",
         f"{_NCCL_CPP}, _allgather_base, _reduce_scatter_base"),
    Rule("nccl", "split sizes of all_to_all_single that do not fit", _splits, RuntimeError,
         "one size per rank, which add up to the rows", "c10d/Utils.hpp, checkSplitSizes"),
    Rule("nccl", "parts of gather and scatter that differ in type or size", _named("NCCL", _one_size), ValueError,
         "give all parts one type and size", "c10d/Utils.hpp, assertTypeAndSizesMatch"),
    Rule("nccl", "recv from anybody", _calls("recv_anysource", words="ProcessGroupNCCL does not support recvAnysource"),
         NotImplementedError, "name the sender: dist.recv(x, src)", f"{_NCCL_CPP}, recvAnysource"),
    Rule("nccl", "all_gather_coalesced",
         _calls("allgather_coalesced", words="ProcessGroupNCCL does not support allgather_coalesced"),
         NotImplementedError, "call all_gather for each", f"{_NCCL_CPP}, allgather_coalesced"),
    Rule("nccl", "monitored_barrier",
         _calls("monitored_barrier",
                words="monitored_barrier requires a group with a CPU-capable backend (e.g. GLOO)."),
         ValueError, "use dist.barrier, or a group of gloo", "distributed_c10d.py, monitored_barrier"),
    Rule("gloo", "int16, uint16 and other types that gloo does not have, in a collective", _collective_types_gloo,
         RuntimeError, _CAST, f"{_GLOO_CPP}, GENERATE_ALL_TYPES"),
    Rule("gloo", "AVG of integers and bool", _average_gloo, RuntimeError, "reduce a float", f"{_GLOO_CPP}, allreduce"),
    Rule("gloo", "BAND, BOR and BXOR of floats", _bitwise_gloo, RuntimeError, "reduce integers",
         f"{_GLOO_CPP}, toFunction"),
    Rule("gloo", "PREMUL_SUM", _scaled_gloo, RuntimeError, "multiply first, then SUM", f"{_GLOO_CPP}, toFunction"),
    Rule("gloo", "a strided tensor in send and recv", _strided_gloo, RuntimeError, "pass x.contiguous()",
         f"{_GLOO_CPP}, checkSingleTensor"),
    Rule("gloo", "parts of gather, scatter and all_gather that differ in size", _named("Gloo", _one_size), RuntimeError,
         "give all parts one type and size", "c10d/Utils.hpp, assertTypeAndSizesMatch"),
    Rule("gloo", "outputs of all_gather that differ from its input", _named("Gloo", _gathered_gloo), RuntimeError,
         "give all parts one type and size", "c10d/Utils.hpp, assertTypeAndSizesMatch"),
    Rule("gloo", "split sizes of all_to_all_single that do not fit", _splits, RuntimeError,
         "one size per rank, which add up to the rows", "c10d/Utils.hpp, checkSplitSizes"),
    Rule("mpi", "f16, bf16, bool and other types that the backend does not map", _type_mpi, IndexError, _CAST,
         f"{_MPI_CPP}, mpiDatatype"),
    Rule("mpi", "AVG, BAND, BOR, BXOR and PREMUL_SUM", _operator_mpi, IndexError, "use SUM, PRODUCT, MIN or MAX",
         f"{_MPI_CPP}, mpiOp"),
    Rule("mpi", "a strided tensor", _strided_mpi, RuntimeError, "pass x.contiguous()",
         f"{_MPI_CPP}, checkSingleTensorHelper"),
    Rule("nccl", "a tensor of the host", None, RuntimeError, "", "c10d/ProcessGroup.hpp, getBackend"),
    Rule("nccl", "two ranks of a group on one device", None, dist.DistBackendError, "",
         "NCCL, src/init.cc, initTransportsRank"),
    Rule("nccl", "messages of two ranks that only tags tell apart: they match in the order of calls", None, None, "",
         f"{_NCCL_CPP}, send and recv, whose tag is unused"),
    Rule("nccl", "two groups in different orders on two ranks that are in both", None, None, "",
         "NCCL, User Guide, Using multiple NCCL communicators concurrently"),
    Rule("nccl", "a send in batch_isend_irecv and its receive alone, or the other way round", None, None, "",
         f"{_NCCL_CPP}, pointToPoint, whose communicator is another"),
    Rule("all", "a write to a tensor between an asynchronous call and its wait", None, None, "",
         "torch.distributed, Synchronous and asynchronous collective operations"),
    Rule("all", "new_group with a list that differs between ranks (`AHBM-X110`)", None, dist.DistBackendError, "",
         "torch.distributed, new_group"),
)  # fmt: skip


F = TypeVar("F", bound=Callable[..., Any])


def ruled(method: F) -> F:
    """Wraps a method of `Collectives`: a call that the backend refuses raises before anything of it is issued."""
    name = method.__name__

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kw: Any) -> Any:
        rules: Rules | None = self._state.rules
        if rules is not None:
            rules.enter(self, name, (*args, *kw.values()))
        return method(self, *args, **kw)

    return cast(F, wrapper)


_MEANT = {"rccl": "nccl", "": "cpu:gloo,cuda:nccl", "undefined": "cpu:gloo,cuda:nccl"}
_BOTH = ("gloo", "mpi")
"""Backends for tensors of the host and of devices."""


class Rules:
    """The rows for the groups that a script has made with one name of a backend."""

    def __init__(self, asked: str) -> None:
        self.asked = asked
        meant = _MEANT.get(asked, asked)
        if ":" in meant:
            self.by_device = {one.partition(":")[0]: one.partition(":")[2] for one in meant.split(",")}
        else:
            self.by_device = dict.fromkeys(("cpu", "cuda") if meant in _BOTH else ("cuda",), meant)
        self.rows = {
            name: [rule for rule in TABLE if rule.backend == name and rule.test] for name in self.by_device.values()
        }
        self.orders = "nccl" in self.rows
        """Whether the order of sends and receives says which belong together, and not their tags."""

    @property
    def hosts(self) -> bool:
        """Whether tensors of the host have a backend."""
        return "cpu" in self.by_device or not place.devices[0]

    def backend(self, tensors: Sequence[Tensor]) -> str:
        """The backend of a call. Raises what torch raises where there is none for the tensors."""
        if not place.devices[0]:
            return self.by_device.get("cpu") or next(iter(self.by_device.values()))
        at = located[0](tensors[0]) if tensors else None
        kind = "cpu" if at == HOST else "cuda"
        if kind not in self.by_device:
            words = f"No backend type associated with device type {kind}"
            raise refused(RuntimeError, "AHBM-X134", words, self._moved(kind))
        name = self.by_device[kind]
        if name == "nccl" and any(located[0](x) == HOST for x in tensors):
            raise refused(ValueError, "AHBM-X134", "Tensors must be CUDA and dense", self._moved("cpu"))
        return name

    def _moved(self, kind: str) -> str:
        other = f"cpu:gloo,cuda:{self.by_device.get('cuda', 'nccl')}"
        if kind == "cpu":
            return f"move it to the device first: x.cuda(); or init_process_group({other!r})"
        return f"move it to the host first: x.cpu(); or init_process_group({other!r})"

    def enter(self, group: Any, name: str, args: Sequence[Any]) -> None:
        """Looks at a call of `group`. Raises torch's error where its backend refuses it."""
        made = call(group.members.size(), name, args)
        backend = group._state.backend = self.backend(made.tensors)
        for rule in self.rows[backend]:
            words = rule.test and rule.test(made)
            if words is None:
                continue
            if rule.raises is not None:
                raise refused(rule.raises, "AHBM-X134", words, rule.hint)
            say(group._place, f"{backend}: {words} [{call_origin()}]", rule.what)
        if backend == "nccl" and place.devices[0] and made.groups > 1:
            at = located[0](made.tensors[0]) if made.tensors else None
            if at is not None and at >= 0:
                claim(group, at)


HOST = -1
located: list[Callable[[Tensor], int | None]] = [lambda x: None]
"""Which device a tensor is on: its number, `HOST` for one that a script has put on the host, None where that is not
known; see `ahbm.torch.device.checks`."""


def call(size: int, name: str, args: Sequence[Any]) -> Made:
    """The call `name` of a group of `size` ranks."""
    operands: list[tuple[Tensor, ...]] = []
    splits: list[Sequence[int]] = []
    op = None
    for arg in args:
        found = tuple(_tensors(arg))
        if found:
            operands.append(found)
        elif isinstance(arg, (list, tuple)) and all(type(n) is int for n in arg):
            if name == "all_to_all_single":
                splits.append(arg)
            elif not arg:
                operands.append(())
        elif hasattr(arg, "reduceOp"):
            op = getattr(arg.reduceOp, "op", arg.reduceOp)
    operands += [()] * (2 - len(operands))
    splits += [()] * (2 - len(splits))
    outs, ins = operands[:2]
    if name == "send":
        outs, ins = (), outs
    if op is None and name.startswith(("allreduce", "reduce")):
        op = _KINDS.SUM
    return Made(name, size, outs, ins, op, (splits[0], splits[1]))


def _tensors(arg: Any) -> Iterator[Tensor]:
    if isinstance(arg, Tensor):
        yield arg
    elif isinstance(arg, (list, tuple)):
        for part in arg:
            yield from _tensors(part)


class _Asking(threading.local):
    name: str | None = None


_asking = _Asking()
_known: dict[str, Rules] = {}


@contextmanager
def asking(name: str | None) -> Iterator[None]:
    """Groups that are made meanwhile are made for a script that asks for backend `name`."""
    before, _asking.name = _asking.name, name
    try:
        yield
    finally:
        _asking.name = before


def asked(of: Any) -> Rules | None:
    """The rules of a group that is being made in a place: those of the backend that the script asks for, else those of
    the default group; None where there are none."""
    if os.environ.get(LENIENT) == "1":
        return None
    name = _asking.name
    if name is None:
        name = of.asked
    elif of.asked is None:
        of.asked = name
    if name is None or not all(one.rpartition(":")[2] in _TABLES for one in _MEANT.get(name, name).split(",")):
        return None
    if name not in _known:
        _known[name] = Rules(name)
    return _known[name]


_TABLES = {rule.backend for rule in TABLE}


def page() -> str:
    """The table as text of Markdown."""
    lines = ["| backend | a script that makes or has | gets | source |", "|---|---|---|---|"]
    for rule in TABLE:
        gets = "a notice" if rule.raises is None else f"`{rule.raises.__name__}`"
        lines.append(f"| {rule.backend} | {rule.what} | {gets} | {rule.source} |")
    return "\n".join(lines)
