"""CUDA graphs: what a capture sees is written down, and a replay does it again on the same storages.

As on a GPU, a capture leaves what was there before as it was, and the clock as well: operations run once, for their
shapes, and what they have overwritten is put back. A replay runs the operations on the memory that the capture has met,
in their order on the current stream, draws new random numbers from the generator of the host, and takes the time of
their kernels. What dies within the capture is made anew by every replay. Without data (`--fake`), a replay takes time
and makes its calls. A captured collective is called by the capture, too: its ranks meet there.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef

from ahbm.torch.device import kernels, marks, native, streams, values, watch
from ahbm.torch.device.fusing import Work
from ahbm.torch.device.meter import meter
from ahbm.torch.replacing import replace

_pools = itertools.count(1)
_held_back: Any = torch._C._DisableTorchDispatch


def refuse() -> None:
    """Raises what a GPU raises where a capture meets what the host waits for."""
    if kernels.placing.graph is not None:
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")


@dataclass(frozen=True)
class _Ref:
    """A tensor of a slot."""

    slot: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class _Operation:
    """One that a replay runs."""

    func: Any
    args: Any
    kwargs: Any
    made: list[tuple[int, _Ref]]
    """Of the results, by their number: those in memory of their own."""
    quiet: bool
    calls: bool
    times: list[Work] = field(default_factory=list)


class Recording:
    """What a capture has seen."""

    def __init__(self) -> None:
        self.operations: list[_Operation] = []
        self._slots: dict[int, int] = {}
        self._weak: list[StorageWeakRef] = []
        self._born: set[int] = set()
        self._kept: dict[int, Any] = {}
        """Storages that are there before and after a replay, by slot."""
        self._before: dict[int, tuple[Any, Any]] = {}
        self._chance = torch.default_generator.get_state()
        self._open: _Operation | None = None
        self._hollow: list[StorageWeakRef] = []
        """Storages without data that a replay writes."""
        self.stepped: list[weakref.ref[Any]] = []
        """Optimizers that have stepped, and step again in a replay."""

    def before(self, known: Any, args: Any, kwargs: Any, given: list[torch.Tensor], to: int | None) -> None:
        """An operation is about to run. Raises torch.AcceleratorError where the host would wait for it."""
        from_device = any(marks.where(x) is not None for x in given)
        if known.moves and given and self._crosses(known, given, to):
            refuse()
        if from_device and known.synchronizes:
            refuse()
        if known.writes_operands or known.is_call:
            for x in kernels.written(known, args, kwargs, given):
                if marks.where(x) is not None:
                    self._save(x)

    def _crosses(self, known: Any, given: Sequence[torch.Tensor], to: int | None) -> bool:
        """Whether pageable memory of the host is an end of a copy."""
        if known.overwrites:
            if len(given) < 2 or known.name == "_foreach_copy_":
                return False
            ends = [given[0], given[1]]
            crosses = (marks.where(ends[0]) is None) != (marks.where(ends[1]) is None)
        else:
            ends = [given[0]]
            at = marks.where(given[0])
            crosses = (to is not None and to < 0 and at is not None) or (to is not None and to >= 0 and at is None)
        return crosses and not any(marks.where(x) is None and x.is_pinned() for x in ends)

    def _save(self, x: torch.Tensor) -> None:
        held = marks.storage(x)
        if held is None or isinstance(x, FakeTensor):
            return
        slot = self._slot(held)
        if slot not in self._born and slot not in self._before:
            with _held_back():
                self._before[slot] = (held, held.clone())

    def _slot(self, held: Any, *, born: bool = False) -> int:
        known = self._slots.get(held._cdata)
        if known is None:
            known = self._slots[held._cdata] = len(self._weak)
            self._weak.append(StorageWeakRef(held))
            if born:
                self._born.add(known)
            else:
                self._kept[known] = held
        return known

    def after(self, func: Any, known: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operation has run; its times follow (`timed`)."""
        self._open = None
        results = [x for x in kernels.tensors((out,)) if marks.where(x) is not None]
        given = kernels.tensors((args, kwargs))
        if known.is_view or not (results or any(marks.where(x) is not None for x in given)):
            return
        if any(isinstance(x, FakeTensor) for x in (*results, *given)):
            for x in (*results, *kernels.written(known, args, kwargs, given)):
                held = marks.storage(x)
                if held is not None:
                    values.forget(held)
                    self._hollow.append(StorageWeakRef(held))
            calls = known.is_call
            self._open = _Operation(func, args if calls else (), kwargs if calls else {}, [], not calls, calls)
            self.operations.append(self._open)
            return
        if any(x.layout is not torch.strided for x in (*results, *given)):
            raise native.refusal(f"a CUDA graph of {func}", "sparse tensors")
        frozen = self._frozen(args), self._frozen(kwargs)
        made = []
        for at, x in enumerate(kernels.tensors((out,))):
            held = marks.storage(x)
            if held is not None and held._cdata not in self._slots:
                self._slot(held, born=True)
                made.append((at, self._ref(x)))
        if made or known.writes_operands or known.is_call:
            self._open = _Operation(func, *frozen, made, known.is_quiet and not known.is_call, known.is_call)
            self.operations.append(self._open)

    def timed(self, work: Work) -> None:
        """The latest operation takes time."""
        if self._open is None:
            self._open = _Operation(None, (), {}, [], True, False)
            self.operations.append(self._open)
        self._open.times.append(work)

    def _ref(self, x: torch.Tensor) -> _Ref:
        return _Ref(self._slot(marks.storage(x)), x.dtype, x.storage_offset(), tuple(x.size()), tuple(x.stride()))

    def _frozen(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if marks.where(value) is None else self._ref(value)
        if type(value) in (list, tuple):
            return type(value)(map(self._frozen, value))
        return {key: self._frozen(each) for key, each in value.items()} if type(value) is dict else value

    def end(self) -> None:
        """The capture has ended: what it has overwritten is put back, and what lives on is known."""
        with _held_back():
            for held, copy in self._before.values():
                held.copy_(copy)
        self._before.clear()
        torch.default_generator.set_state(self._chance)
        for slot in self._born:
            if not self._weak[slot].expired():
                self._kept[slot] = torch.UntypedStorage._new_with_weak_ptr(self._weak[slot].cdata)

    def replay(self) -> None:
        """Does all again."""
        for weak in self._hollow:
            if not weak.expired():
                values.forget(torch.UntypedStorage._new_with_weak_ptr(weak.cdata))
        held = dict(self._kept)
        with meter.submission():
            for operation in self.operations:
                if operation.func is not None and not (operation.quiet and not operation.made):
                    self._run(operation, held)
                for work in operation.times:
                    meter.run(work)
        for optimizer in filter(None, (held() for held in self.stepped)):
            watch.step(optimizer)

    def _run(self, operation: _Operation, held: dict[int, Any]) -> None:
        lasting = [ref.slot in self._kept for _, ref in operation.made]
        if operation.quiet and lasting and all(lasting):
            return  # memory is there, and nothing is written to it
        with torch.no_grad():
            if operation.calls:
                _wait(operation.func(*_thawed(operation.args, held), **_thawed(operation.kwargs, held)))
                return
            with _held_back():
                out = operation.func(*_thawed(operation.args, held), **_thawed(operation.kwargs, held))
                found = kernels.tensors((out,))
                for (at, ref), lasts in zip(operation.made, lasting, strict=True):
                    if lasts:
                        _tensor(ref, held).copy_(found[at])
                    else:
                        held[ref.slot] = found[at].untyped_storage()


def _wait(out: Any) -> None:
    for each in out if isinstance(out, tuple) else (out,):
        if hasattr(each, "wait") and not isinstance(each, torch.Tensor):
            each.wait()


def _tensor(ref: _Ref, held: dict[int, Any]) -> torch.Tensor:
    with _held_back():
        empty = torch._C._VariableFunctions.empty((0,), dtype=ref.dtype)
        return empty.set_(held[ref.slot], ref.offset, ref.size, ref.stride)


def _thawed(value: Any, held: dict[int, Any]) -> Any:
    if isinstance(value, _Ref):
        return _tensor(value, held)
    if type(value) in (list, tuple):
        return type(value)(_thawed(each, held) for each in value)
    return {key: _thawed(each, held) for key, each in value.items()} if type(value) is dict else value


class _Handle:
    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        """Takes the hook away."""
        with contextlib.suppress(ValueError):
            self._hooks.remove(self._hook)


_now: list[Any] = [None]
_replayed = [False]
"""Whether any graph was."""


class CUDAGraph:
    """`torch.cuda.CUDAGraph`."""

    _annotation_key_by = "exec"
    _capture_graph_id = None

    def __init__(self, keep_graph: bool = False, **kw: Any) -> None:
        self._keep_graph = keep_graph
        self._recorded_exec_ids: set[int] = set()
        self._hooks: dict[str, list[Any]] = {}
        self._retained: list[Any] = []
        self._pool: Any = (0, next(_pools))
        self._recording: Recording | None = None
        self._ended = False

    def __reduce_ex__(self, proto: Any) -> Any:
        """Raises TypeError, as torch's own: copies of its `StorageWeakRef`s would free what they have not taken."""
        raise TypeError("cannot pickle 'CUDAGraph' object")

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **kw: Any) -> None:
        """From now on, what the calling thread does is recorded. Raises RuntimeError while another capture runs."""
        if kernels.placing.graph is not None:
            raise RuntimeError(
                "CUDA graphs must be captured one at a time, and on a stream that does not capture already"
            )
        if self._ended:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        if pool is not None:
            self._pool = getattr(pool, "id", pool)
        self._recording = kernels.placing.graph = Recording()
        meter.tape = self._recording.timed
        _now[0] = self
        self._run("capture_start")

    def capture_end_pre(self) -> None:
        """What follows is no longer recorded. Raises RuntimeError where nothing is."""
        if self._recording is None or kernels.placing.graph is not self._recording:
            raise RuntimeError("capture_end() called before capture_begin().")
        kernels.placing.graph = meter.tape = _now[0] = None
        self._recording.end()
        self._ended = True
        if not _replayed[0] and meter.lanes is not None:
            meter.lanes.forget()  # what ran until now has warmed up what was captured

    def capture_end_post(self) -> None:
        """Nothing to do."""

    def capture_end(self) -> None:
        """Ends the recording."""
        self.capture_end_pre()
        self._run("capture_end")
        if not self._keep_graph:
            self.instantiate()

    def instantiate(self) -> None:
        """Raises RuntimeError before a capture has ended."""
        if not self._ended:
            raise RuntimeError("Called CUDAGraph::instantiate without a preceding successful capture.")
        self._run("post_instantiate")

    def replay(self) -> None:
        """Does again what was captured. Raises RuntimeError before a capture has ended."""
        if self._recording is None or not self._ended:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        refuse()
        _replayed[0] = True
        self._run("replay_start")
        self._recording.replay()
        self._run("replay_end")

    def reset(self) -> None:
        """Forgets the recording."""
        self._run("destroy")
        self._recording, self._ended = None, False
        self._retained.clear()

    def pool(self) -> Any:
        """The number of its pool."""
        return torch.cuda._POOL_HANDLE(self._pool) if hasattr(torch.cuda, "_POOL_HANDLE") else self._pool

    def pools(self) -> list[Any]:
        """Its only pool."""
        return [self.pool()]

    def _retain_pool(self, pool: Any) -> None:
        """Nothing to do."""

    def retain_object(self, obj: Any, **kw: Any) -> Any:
        """Keeps an object until the graph is reset."""
        self._retained.append(obj)
        return obj

    def enable_debug_mode(self) -> None:
        """The recording is kept anyway."""
        self._keep_graph = True

    @staticmethod
    def get_currently_capturing_graph() -> Any:
        """The graph that records; None: none does."""
        return _now[0]

    def _run(self, kind: str) -> None:
        for hook in list(self._hooks.get(kind, ())):
            hook(self)

    def _register(self, kind: str, hook: Any) -> _Handle:
        hooks = self._hooks.setdefault(kind, [])
        hooks.append(hook)
        return _Handle(hooks, hook)

    def __getattr__(self, name: str) -> Any:
        kind = name.removeprefix("register_").removesuffix("_hook").removesuffix("_callback")
        if name.startswith("register_") and kind in (
            "capture_start", "capture_end", "post_instantiate", "replay_start", "replay_end", "destroy",
        ):  # fmt: skip
            return lambda hook, **kw: self._register(kind, hook)
        if name in (
            "debug_dump",
            "raw_cuda_graph",
            "raw_cuda_graph_exec",
            "get_graph_data",
            "register_generator_state",
        ):
            return native.refusing(f"torch.cuda.CUDAGraph.{name}")
        raise AttributeError(f"'CUDAGraph' object has no attribute {name!r}")


class Graph(CUDAGraph):
    """`torch.accelerator.Graph`, which is a context, too."""

    def __init__(self, keep_graph: bool = False, *, pool: Any = None, capture_error_mode: str = "default") -> None:
        super().__init__(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode
        self._own = streams.Stream()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **kw: Any) -> None:
        """See `CUDAGraph`."""
        super().capture_begin(pool=self.graph_pool if pool is None else pool)

    def __enter__(self) -> Graph:
        self._own.__enter__()
        self.capture_begin()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.capture_end()
        finally:
            self._own.__exit__()


def capturing() -> bool:
    """Whether the calling thread's operations are recorded."""
    return kernels.placing.graph is not None


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


def install() -> None:
    """Puts all this in torch's place."""
    replace(torch.cuda.CUDAGraph, CUDAGraph)
    graphs: Any = torch.cuda.graphs
    graphs.CUDAGraph = CUDAGraph
    asks: Callable[[], bool] = capturing
    for home, name in (
        (torch._C, "_cuda_isCurrentStreamCapturing"),
        (graphs, "_cuda_isCurrentStreamCapturing"),
        (graphs, "is_current_stream_capturing"),
        (torch.cuda, "is_current_stream_capturing"),
    ):
        setattr(home, name, asks)
    for home in (torch.accelerator, getattr(torch.accelerator, "graphs", None)):
        if home is not None and hasattr(home, "Graph"):
            home.Graph = Graph
    streams.waits.append(refuse)
