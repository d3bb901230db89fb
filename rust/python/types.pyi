"""The signatures that `_core` does not say itself; `scripts/stubs.py` puts them into `python/ahbm/_core.pyi`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ahbm.errors import DeadlockError

_Shape: TypeAlias = int | Sequence[int]
_Number: TypeAlias = float | SupportsIndex
_Four: TypeAlias = tuple[int, int, int, int]
_Place: TypeAlias = tuple[int, int, int]

class AstraRun:
    @property
    def findings(self) -> list[dict[str, Any]]: ...

class AstraSetup:
    @property
    def warnings(self) -> list[dict[str, Any]]: ...

class Compute:
    @property
    def fit(self) -> dict[str, Any] | None: ...
    @property
    def values(self) -> dict[str, float]: ...

class DecisionTree:
    def __new__(
        cls,
        inputs: Sequence[str | float],
        feature: Sequence[int],
        threshold: Sequence[float],
        left: Sequence[int],
        right: Sequence[int],
        value: Sequence[int],
    ) -> DecisionTree: ...

class Handle:
    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn: ...
    def __getitem__(self, index: object, /) -> NoReturn: ...
    def __iter__(self) -> NoReturn: ...
    def __setitem__(self, index: object, value: object, /) -> NoReturn: ...
    @property
    def data(self) -> NoReturn: ...
    def item(self) -> NoReturn: ...
    def numpy(self) -> NoReturn: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def tolist(self) -> NoReturn: ...

class Job:
    def __new__(cls, hosts: Sequence[NDArray[np.uint64]], after: Sequence[int | None]) -> Job: ...

class Machine:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]: ...

class Memory:
    def read(self, buffer: int, out: NDArray[Any], offset: int = 0) -> None: ...
    def run(
        self,
        timeline: Timeline,
        arrays: Sequence[NDArray[Any]],
        operands: Sequence[NDArray[np.int64]],
        results: Sequence[NDArray[np.int64]],
    ) -> None: ...
    def write(self, buffer: int, data: NDArray[Any], offset: int = 0) -> None: ...

class MemoryRef:
    @property
    def shape(self) -> tuple[int, ...]: ...

class MscclRecorder:
    def __new__(cls, *_args: object, **_kwargs: object) -> MscclRecorder: ...
    def _begin(
        self,
        input: object,
        output: object,
        ranks: int,
        mapping: str,
        factor: int,
        topology: object,
        collective: object,
        quirks: bool,
    ) -> None: ...
    def _buffer(
        self, rank: int, buffer: object, kind: str, chunks: Sequence[_Four | None], other: object | None = None
    ) -> None: ...
    def _length(self, rank: int, buffer: object) -> int | None: ...
    def _lower(
        self,
        *,
        name: str,
        goal: str,
        root: int,
        factor: int,
        in_place: bool,
        protocol: str,
        instances: int,
        interleaved: bool,
        fusion: bool,
        manual: bool,
        check: bool,
        gathered: bool,
        collective: str,
        sizes: bool,
    ) -> tuple[Plan, str, list[dict[str, Any]]]: ...
    def _names(self, rank: int) -> list[object]: ...
    def _value(self, rank: int, buffer: object, index: int) -> tuple[int | None, list[_Four]] | None: ...
    def get_ref(self, rank: int, buffer: object, index: int, size: int) -> Ref: ...

class MscclppProgram:
    def statement(
        self,
        kind: str,
        at: Sequence[int],
        workers: int | Sequence[int] | None,
        pieces: Sequence[tuple[int, int, int, int, int]],
        sync: int,
        function: int,
    ) -> None: ...
    def text(self) -> tuple[str, list[dict[str, Any]]]: ...

class Neighbour:
    def read(self, address: int, out: NDArray[Any]) -> None: ...
    def write(self, address: int, source: NDArray[Any]) -> None: ...

class Peer:
    def __eq__(self, other: object, /) -> bool: ...

class Plan:
    def check(
        self, *, slots: int | None = 0, orders: int = 4, seed: int = 0, calls: int = 2
    ) -> tuple[str, int | None, list[dict[str, Any]], tuple[int, int] | None]: ...
    @property
    def warnings(self) -> list[dict[str, Any]]: ...

class Profile:
    @property
    def kernels(self) -> NDArray[np.int64]: ...
    @property
    def operations(self) -> NDArray[np.int64]: ...

class Program:
    def check(
        self,
        *,
        dtype: str,
        operands: Sequence[tuple[int, int, int, int, int]],
        results: Sequence[tuple[int, int, int, int, int]],
        sets: Sequence[Sequence[tuple[int, int]]],
        names: Sequence[tuple[int, str]],
        owners: Sequence[tuple[int, int]],
        repeats: bool = False,
        synchronises: bool = False,
        op: str | None = None,
        parties: int = 1,
        calls: int = 1,
        orders: int = 4,
        seed: int = 0,
    ) -> tuple[str, list[dict[str, Any]]]: ...

class ProgramBuilder:
    def capture(
        self,
        kernel: Callable[..., None],
        args: tuple[object, ...],
        coord: _Place,
        num_programs: tuple[int, int],
        views: Sequence[tuple[int, int]],
        dtype: str,
    ) -> int: ...
    def capture_all(
        self,
        kernel: Callable[..., None],
        before: tuple[object, ...],
        again: tuple[object, ...],
        after: tuple[object, ...],
        ranks: int,
        cubes: int,
        views: Sequence[tuple[int, int]],
        dtype: str,
        *,
        by_class: bool = True,
        expected: Sequence[int] | None = None,
    ) -> list[int]: ...
    def recapture(
        self,
        kernel: Callable[..., None],
        args: tuple[object, ...],
        coord: _Place,
        num_programs: tuple[int, int],
        views: Sequence[tuple[int, int]],
        dtype: str,
        body: int,
    ) -> None: ...

class Recipe:
    @staticmethod
    def of(
        program: Program,
        timeline: Timeline,
        operands: Sequence[NDArray[np.int64]],
        results: Sequence[NDArray[np.int64]],
    ) -> Recipe | None: ...
    def run(self, arrays: Sequence[NDArray[Any]]) -> bool: ...

class RecvFuture:
    @property
    def shape(self) -> tuple[int, ...]: ...

class Ref:
    def copy(
        self, dst: int, buffer: object = None, index: int = -1, sendtb: int = -1, recvtb: int = -1, ch: int = -1
    ) -> Ref: ...
    def group(self, other: Ref) -> Ref: ...
    def reduce(self, other_chunkref: Ref, sendtb: int = -1, recvtb: int = -1, ch: int = -1) -> Ref: ...
    def split(self, num: int) -> list[Ref]: ...

class Replayed:
    @property
    def nodes(
        self,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]: ...

class Timeline:
    def agent_time(self) -> NDArray[np.uint64]: ...
    def chunks_ps(self) -> NDArray[np.uint64]: ...
    def critical_path(
        self,
    ) -> tuple[
        NDArray[np.uint32],
        NDArray[np.uint32],
        NDArray[np.uint8],
        NDArray[np.uint32],
        NDArray[np.uint32],
        NDArray[np.uint64],
        NDArray[np.uint64],
    ]: ...
    @property
    def deadlock(self) -> DeadlockError | None: ...
    def intervals(
        self, agent: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64]]: ...
    def spans(self, agent: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...

class Tl:
    def cast(self, a: Handle, dtype: str) -> Handle: ...
    def cdiv(self, a: int, b: int) -> int: ...
    def clamp(self, a: Handle, lo: _Number, hi: _Number) -> Handle: ...
    def combine(self, a: Handle | _Number, b: Handle | _Number, op: str) -> Handle: ...
    def composite(self, op: str, a: Handle | MemoryRef, b: Handle | MemoryRef, out_ptr: int) -> None: ...
    def dot(self, a: Handle | MemoryRef, b: Handle | MemoryRef) -> Handle: ...
    def exp(self, a: Handle) -> Handle: ...
    def fma(self, a: Handle | _Number, b: Handle | _Number, c: Handle | _Number) -> Handle: ...
    def full(self, shape: _Shape, value: _Number, dtype: str = "f16") -> Handle: ...
    def load(self, ptr: int | MemoryRef, shape: _Shape | None = None, dtype: str | None = None) -> Handle: ...
    def load_reduce(
        self, ptr: int, shape: _Shape, sips: Iterable[int], dtype: str = "f16", op: str = "sum"
    ) -> Handle: ...
    def log(self, a: Handle) -> Handle: ...
    def max(self, a: Handle, axis: int | None = None) -> Handle: ...
    def maximum(self, a: Handle | _Number, b: Handle | _Number) -> Handle: ...
    def min(self, a: Handle, axis: int | None = None) -> Handle: ...
    def minimum(self, a: Handle | _Number, b: Handle | _Number) -> Handle: ...
    def multicast(self, ptr: int, value: Handle | MemoryRef, sips: Iterable[int]) -> None: ...
    def peer(self, *, sip: int | None = None, cube: int | None = None, pe: int | None = None) -> Peer: ...
    def program_id(self, axis: int = 0) -> int: ...
    def recv(
        self,
        dir: str | Peer | None = None,
        shape: _Shape | None = None,
        dtype: str = "f16",
        mode: str = "return_slot",
        dst: int | None = None,
    ) -> Handle: ...
    def recv_async(self, dir: str | Peer, shape: _Shape, dtype: str = "f16") -> RecvFuture: ...
    def ref(self, ptr: int, shape: _Shape, dtype: str = "f16") -> MemoryRef: ...
    def send(self, dir: str | Peer, src: Handle | MemoryRef) -> None: ...
    def softmax(self, a: Handle, axis: int = -1) -> Handle: ...
    def sqrt(self, a: Handle) -> Handle: ...
    def store(self, ptr: int, value: Handle | MemoryRef) -> None: ...
    def sum(self, a: Handle, axis: int | None = None) -> Handle: ...
    def trans(self, a: Handle) -> Handle: ...
    def wait(self, future: RecvFuture | Handle) -> Handle: ...
    def where(self, cond: Handle, a: Handle | _Number, b: Handle | _Number) -> Handle: ...
    def zeros(self, shape: _Shape, dtype: str = "f16") -> Handle: ...

class Watch:
    def __new__(cls, socket: int, grace_s: float, unheard: Callable[[], bool]) -> Watch: ...

class Workload:
    @property
    def notes(self) -> list[dict[str, Any]]: ...

def msccl_chunk(rank: int, buffer: object, index: int, size: int = 1) -> Ref: ...
