"""Types of the extension module; `scripts/check_stubs.py` compares them with the built module."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self, SupportsIndex, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from ahbm.errors import DeadlockError

__all__ = [
    "AlgorithmFeatures",
    "AstraRun",
    "AstraSetup",
    "CallFeatures",
    "DecisionTree",
    "Flow",
    "Gate",
    "Gates",
    "Handle",
    "Job",
    "JobCall",
    "JobFeatures",
    "JobTimes",
    "Limit",
    "Machine",
    "MachineFeatures",
    "Memory",
    "MemoryRef",
    "MscclRecorder",
    "MscclppProgram",
    "Neighbour",
    "Peer",
    "Plan",
    "PlanBuilder",
    "Program",
    "ProgramBuilder",
    "Protocol",
    "Recipe",
    "RecvFuture",
    "Ref",
    "Replayed",
    "Roofline",
    "RuleTable",
    "Schedule",
    "Timeline",
    "Tl",
    "Watch",
    "Workload",
    "categories",
    "check_timeline_name",
    "codes",
    "collectives",
    "convert_plan",
    "expected",
    "held",
    "is_pytorch_trace",
    "msccl_chunk",
    "mscclpp_statement",
    "plan_files",
    "plan_formats",
    "plan_limits",
    "read_plan",
    "sources",
    "trace_sort",
    "write_job_timeline",
    "write_recording",
]

_Shape: TypeAlias = int | Sequence[int]
_Run: TypeAlias = tuple[int, int, int, list[tuple[int, int]]]
_Place: TypeAlias = tuple[int, int, int]
_Number: TypeAlias = float | SupportsIndex

@final
class AstraRun:
    @property
    def cycles(self) -> list[int | None]: ...
    @property
    def exposed(self) -> list[int | None]: ...
    @property
    def comm_ns(self) -> list[int]: ...
    @property
    def gpu_ns(self) -> list[int]: ...
    @property
    def times(self) -> list[list[tuple[int, int, int]]] | None: ...
    @property
    def calls(self) -> list[tuple[str, int, int, int, int, int]]: ...
    @property
    def traffic(self) -> list[tuple[int, int]]: ...
    @property
    def links(self) -> list[tuple[int, str, str, int]]: ...
    @property
    def events(self) -> int: ...
    @property
    def findings(self) -> list[dict[str, Any]]: ...

@final
class AstraSetup:
    def __new__(
        cls,
        workload: str | PathLike[str],
        system: str | PathLike[str],
        network: str | PathLike[str],
        memory: str | PathLike[str],
        groups: str | PathLike[str] | None = None,
        *,
        limits: Sequence[tuple[str, int]] = (),
    ) -> AstraSetup: ...
    @property
    def ranks(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def dimensions(self) -> list[tuple[str, int, float, float]]: ...
    @property
    def roofline(self) -> tuple[float, float] | None: ...
    @property
    def warnings(self) -> list[dict[str, Any]]: ...
    def check(self) -> None: ...
    def run(
        self,
        *,
        aware: bool = False,
        queues: int = 1,
        injection_scale: float = 1.0,
        rendezvous: bool = False,
        times: bool = False,
        max_events: int | None = None,
    ) -> AstraRun: ...

@final
class Job:
    def __new__(cls, hosts: Sequence[NDArray[np.uint64]], after: Sequence[int | None]) -> Job: ...
    @property
    def launches(self) -> int: ...
    @property
    def ranks(self) -> list[int]: ...
    def times(
        self, machine: Machine, programs: Sequence[tuple[Program, int] | None], *, max_events: int = ...
    ) -> JobTimes: ...

@final
class JobCall:
    @property
    def collective(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def longest(self) -> int | None: ...
    @property
    def shares(self) -> list[list[int]] | None: ...
    @property
    def spread(self) -> bool: ...
    @property
    def uneven(self) -> bool: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def op(self) -> str | None: ...
    @property
    def root(self) -> int | None: ...
    @property
    def alike(self) -> int: ...
    @property
    def origin(self) -> str: ...

@final
class JobTimes:
    @property
    def starts_ps(self) -> list[int]: ...
    @property
    def ends_ps(self) -> list[int]: ...
    @property
    def hosts_ps(self) -> list[int]: ...
    @property
    def entered_ps(self) -> list[list[int]]: ...
    @property
    def computed_ps(self) -> list[list[tuple[int, int]]]: ...
    @property
    def together(self) -> int: ...

@final
class AlgorithmFeatures:
    @property
    def algorithm_id(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def ops(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def chunk_count(self) -> int: ...
    @property
    def sent_bytes(self) -> int: ...
    @property
    def busiest_bytes(self) -> int: ...
    @property
    def branch_factor(self) -> int: ...
    @property
    def dependency_depth(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def compute_ns(self) -> float: ...
    @property
    def arithmetic_intensity(self) -> float: ...
    @property
    def compute_to_comm_ratio(self) -> float: ...
    @property
    def queue_depth(self) -> int: ...
    @property
    def cut_bytes(self) -> int: ...
    @property
    def path_ns(self) -> float: ...
    @property
    def link_ns(self) -> float: ...
    @property
    def rounds_ns(self) -> float: ...

@final
class MachineFeatures:
    @property
    def ranks(self) -> int: ...
    @property
    def cubes(self) -> int: ...
    @property
    def pes(self) -> int: ...
    @property
    def links(self) -> int: ...
    @property
    def least_degree(self) -> int: ...
    @property
    def most_degree(self) -> int: ...
    @property
    def diameter(self) -> int: ...
    @property
    def bisection_links(self) -> int: ...
    @property
    def bisection_gbs(self) -> float: ...
    @property
    def dimensions(self) -> list[int]: ...
    @property
    def latency_ns(self) -> list[float]: ...
    @property
    def bandwidth_gbs(self) -> list[float]: ...

@final
class CallFeatures:
    @property
    def message_size_bin(self) -> int: ...
    @property
    def pipelined(self) -> bool: ...
    @property
    def fused(self) -> bool: ...
    @property
    def overlap_capable(self) -> bool: ...
    @property
    def producers(self) -> int: ...
    @property
    def branch_factor(self) -> int: ...
    @property
    def dependency_depth(self) -> int: ...

@final
class JobFeatures:
    @property
    def calls(self) -> list[CallFeatures]: ...
    @property
    def computations(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def compute_ns(self) -> float: ...
    @property
    def comm_bytes(self) -> int: ...
    @property
    def model_intensity(self) -> float: ...
    @property
    def arithmetic_intensity(self) -> float: ...
    @property
    def compute_to_comm_ratio(self) -> float: ...

@final
class Workload:
    @staticmethod
    def read(
        path: str | PathLike[str],
        *,
        groups: Mapping[str, Sequence[int]] = {},
        lenient: bool = False,
        limits: Sequence[tuple[str, int]] = (),
        step: int | None = None,
        host_gaps: bool = False,
        symmetric: bool = False,
    ) -> Workload: ...
    @staticmethod
    def transformer(name: str, sizes: Mapping[str, int], dtype: tuple[str, int], schedule: str) -> Workload: ...
    def replicated(self, replicas: int) -> Workload: ...
    def on_network(self, npus: Sequence[int]) -> Workload: ...
    def write(self, prefix: str | PathLike[str]) -> list[Path]: ...
    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def graphs(self) -> int: ...
    @property
    def left_out(self) -> tuple[int, int]: ...
    @property
    def recorded(self) -> bool: ...
    @property
    def notes(self) -> list[dict[str, Any]]: ...
    @property
    def calls(self) -> list[JobCall]: ...
    @property
    def chunks(self) -> list[tuple[int, int, int, bool]]: ...
    def features(self, machine: Machine, *, factors: Sequence[tuple[str, float]] = ()) -> JobFeatures: ...
    def replay(
        self,
        machine: Machine,
        programs: Sequence[Program | None],
        *,
        made_for: Sequence[int] = (),
        regions: Sequence[Sequence[tuple[int, int, int]]] = (),
        lanes: str = "device",
        factors: Sequence[tuple[str, float]] = (),
        fold: bool = True,
        max_events: int = ...,
    ) -> Replayed: ...

@final
class Replayed:
    @property
    def by_roofline(self) -> bool: ...
    @property
    def untimed(self) -> int: ...
    @property
    def simulated(self) -> int: ...
    @property
    def waiting_ps(self) -> list[int]: ...
    @property
    def exposed_ps(self) -> list[tuple[int | None, int, int]]: ...
    @property
    def ends_ps(self) -> list[int]: ...
    @property
    def computed_ps(self) -> list[int]: ...
    @property
    def exposures(self) -> list[list[tuple[int | None, int, int]]]: ...
    @property
    def path(self) -> list[tuple[int, int, int, str, int | None, str, str]]: ...
    @property
    def calls_ps(self) -> list[tuple[int, int, int]]: ...
    @property
    def nodes(
        self,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]: ...
    @property
    def traffic(self) -> tuple[int, int, int]: ...
    def program(self) -> Program: ...
    def write_trace(self, prefix: str | PathLike[str]) -> tuple[list[Path], int | None]: ...
    def write_timeline(self, path: str | PathLike[str], *, ranks_only: bool = False) -> int: ...

def is_pytorch_trace(path: str | PathLike[str]) -> bool: ...
def trace_sort(path: str | PathLike[str], *, limits: Sequence[tuple[str, int]] = ()) -> str: ...

@final
class Gate:
    def __new__(cls) -> Gate: ...
    def open(self) -> None: ...
    def announce(self) -> None: ...
    def wait(self, seconds: float | None = None) -> bool: ...

@final
class Gates:
    def __new__(cls, ranks: int) -> Gates: ...
    def gate(self, rank: int) -> Gate: ...
    def leave(self, rank: int) -> None: ...

@final
class Neighbour:
    def __new__(cls, pid: int) -> Neighbour: ...
    @staticmethod
    def admit(pid: int) -> None: ...
    def read(self, address: int, out: NDArray[Any]) -> None: ...
    def write(self, address: int, source: NDArray[Any]) -> None: ...

@final
class Limit:
    def __new__(
        cls,
        machine: Machine,
        collective: str,
        *,
        ranks: int = 0,
        root: int = 0,
        dst: int = 0,
        cubes: bool = False,
        sips: Sequence[int] = (),
    ) -> Limit: ...
    @staticmethod
    def around(machine: Machine, sip: int, enters: bool) -> Limit: ...
    def ps(self, nbytes: int) -> int: ...
    def terms(self, nbytes: int) -> tuple[int, int]: ...
    def by_bandwidth(self, nbytes: int) -> bool: ...
    @property
    def tightest(self) -> bool: ...
    @property
    def cut(self) -> tuple[int, list[tuple[int, int]], float, int, int]: ...

@final
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
    @staticmethod
    def inputs() -> list[str]: ...
    def choose(self, nbytes: int, ranks: int, nodes: int = ..., item: int = ...) -> int: ...
    def __len__(self) -> int: ...

@final
class RuleTable:
    def __new__(cls, rows: Sequence[tuple[str, int, int, bool, int, int, int, int, int, int]]) -> RuleTable: ...
    def first(self, collective: str, nbytes: int, ranks: int, nodes: int = ..., after: int = ...) -> int | None: ...
    def __len__(self) -> int: ...

@final
class Roofline:
    @property
    def operations_per_ns(self) -> float: ...
    @property
    def bytes_per_ns(self) -> float: ...
    @property
    def host_bytes_per_ns(self) -> float: ...
    @property
    def launch_ps(self) -> int: ...
    @property
    def f64_share(self) -> float: ...
    @property
    def f32_share(self) -> float: ...
    @property
    def tf32_share(self) -> float: ...
    @property
    def byte_share(self) -> float: ...

@final
class Protocol:
    @property
    def name(self) -> str: ...
    @property
    def algorithms(self) -> list[str]: ...
    @property
    def slots(self) -> int | None: ...
    @property
    def channels(self) -> int | None: ...
    @property
    def wires(self) -> tuple[float | None, float | None]: ...
    @property
    def by_size(self) -> bool: ...
    def is_for(self, nbytes: int, ranks: int) -> bool: ...

@final
class Machine:
    @staticmethod
    def from_yaml(text: str, origin: str, overrides: Sequence[tuple[str, str]] = ()) -> Machine: ...
    def features(self) -> MachineFeatures: ...
    def reduces(self, sips: Sequence[int]) -> bool: ...
    def least_by_io(
        self, collective: str, sips: Sequence[int], nbytes: int, root: int, dst: int
    ) -> tuple[int, str] | None: ...
    @property
    def dma_channels(self) -> int | None: ...
    def carries(self, source: Sequence[int], target: Sequence[int]) -> bool: ...
    @property
    def sips(self) -> int: ...
    @property
    def node_size(self) -> int: ...
    @property
    def cubes(self) -> int: ...
    @property
    def cube_w(self) -> int: ...
    @property
    def cube_h(self) -> int: ...
    @property
    def pes(self) -> int: ...
    @property
    def topology(self) -> str: ...
    @property
    def switch_reduces(self) -> bool: ...
    @property
    def sip_w(self) -> int: ...
    @property
    def sip_h(self) -> int: ...
    @property
    def sip_d(self) -> int: ...
    @property
    def tiers(self) -> list[str]: ...
    @property
    def protocols(self) -> list[Protocol]: ...
    @property
    def library(self) -> list[tuple[str, list[str]]]: ...
    @property
    def bands(self) -> list[tuple[str, int, int, int, float, float]] | None: ...
    @property
    def ranges(self) -> list[tuple[str, int, int, int]]: ...
    @property
    def sheet(self) -> tuple[str | None, str | None]: ...
    def check_computes(self) -> None: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def slice_bytes(self) -> int: ...
    @property
    def launch_ps(self) -> int: ...
    @property
    def origin(self) -> str: ...
    @property
    def overrides(self) -> list[tuple[str, str]]: ...
    def changed(self, overrides: Sequence[tuple[str, str]]) -> Machine: ...
    def with_costs(
        self, costs: tuple[str | None, int, int | None, int | None, int | None, bool, tuple[int, int]]
    ) -> Machine: ...
    def caps(self, alike: float) -> tuple[float | None, float | None, float | None] | None: ...
    @property
    def striped(self) -> bool: ...
    @property
    def parameters(self) -> list[tuple[str, str]]: ...
    def __reduce__(self) -> tuple[object, tuple[object, ...]]: ...
    @property
    def roofline(self) -> Roofline: ...
    def kernel_ps(
        self,
        name: str,
        operations: int,
        nbytes: int,
        *,
        arithmetic: str = "f16",
        host: bool = False,
        factors: Sequence[tuple[str, float]] = (),
    ) -> int: ...
    @property
    def hash(self) -> int: ...
    def describe(self) -> str: ...
    def links_between_sips(self) -> list[str]: ...
    def links_between_cubes(self, sip: int) -> list[str]: ...
    def svg(self) -> str: ...
    def _repr_svg_(self) -> str: ...

@final
class ProgramBuilder:
    def __new__(
        cls,
        machine: Machine,
        name: str,
        *,
        n_slots: int,
        slot_bytes: int | None,
        tier: str,
        credit_bytes: int,
        op_budget: int,
        all_ops: int = ...,
    ) -> ProgramBuilder: ...
    def group(
        self,
        *,
        topology: str | None = None,
        sips: int | None = None,
        w: int = 0,
        h: int = 0,
        d: int = 0,
        cube_w: int | None = None,
        cube_h: int | None = None,
        pes: int | None = None,
    ) -> int: ...
    def buffer(self, place: _Place, nbytes: int, space: str = "hbm") -> int: ...
    def capture(
        self,
        kernel: Callable[..., None],
        args: tuple[object, ...],
        coord: _Place,
        num_programs: tuple[int, int],
        views: Sequence[tuple[int, int]],
        dtype: str,
    ) -> int: ...
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
    ) -> list[int]: ...
    def agents(
        self, group: int, bodies: Sequence[int], places: Sequence[_Place], cubes: Sequence[int], nbytes: int
    ) -> int: ...
    def agent(self, group: int, coord: _Place, place: _Place, body: int, buffers: Sequence[int]) -> None: ...
    def finish(self, *, unmatched: bool = ...) -> Program: ...

@final
class Program:
    @property
    def name(self) -> str: ...
    @property
    def agents(self) -> int: ...
    @property
    def ops(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def hash(self) -> int: ...
    def text(self) -> str: ...
    def features(self, limit: Limit | None = None) -> AlgorithmFeatures: ...
    def simulate(
        self,
        *,
        record: bool = True,
        detail: bool = False,
        max_events: int = ...,
        stuck: bool = False,
        fold: bool = True,
    ) -> Timeline: ...
    def latency_without(self, lines: Sequence[int]) -> int: ...
    def least_by_engines(
        self, collective: str, sips: Sequence[int], nbytes: int, root: int, dst: int, by_tile: bool
    ) -> tuple[int, str] | None: ...
    def place(self, agent: int) -> str: ...
    def describe(self, agent: int, op: int) -> tuple[str, str]: ...
    def line(self, agent: int, op: int) -> str: ...
    def write_trace(self, timeline: Timeline, prefix: str | Path) -> list[Path]: ...
    def delayed(self, pauses: Sequence[tuple[int, int, int]]) -> Program: ...
    @property
    def machine(self) -> Machine: ...
    def protocols(self, alike: float) -> list[tuple[str, int, tuple[float | None, float | None, float | None]]]: ...
    @property
    def tiers(self) -> list[str]: ...
    def on(self, machine: Machine, doubled: Sequence[int] = (), instant: Sequence[int] = ()) -> Program: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def ranks(self) -> list[int]: ...
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
    def orders(
        self,
        *,
        dtype: str,
        operands: Sequence[tuple[int, int, int, int, int]],
        results: Sequence[tuple[int, int, int, int, int]],
        parties: int,
    ) -> tuple[list[str], list[tuple[int, int, int, int]]] | None: ...
    def plan(
        self,
        *,
        name: str,
        collective: str,
        root: int,
        nranks: int,
        nbytes: int,
        dtype: str,
        slots: int,
        limits: Sequence[tuple[str, int]] = (),
    ) -> Plan: ...

@final
class Timeline:
    @property
    def latency_ps(self) -> int: ...
    @property
    def deadlock(self) -> DeadlockError | None: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def hash(self) -> int: ...
    @property
    def ends_ps(self) -> list[int]: ...
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
    def chunks_ps(self) -> NDArray[np.uint64]: ...
    def agent_time(self) -> NDArray[np.uint64]: ...
    def intervals(
        self, agent: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64]]: ...
    def link_load(self, frames: int) -> list[tuple[int, str, list[int]]]: ...
    def spans(self, agent: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...
    def link_use(self) -> list[tuple[int, str, int, int, int, int]]: ...
    def busy_links(self, at: int) -> list[tuple[int, str, int, int, int]]: ...
    def state(
        self, at: int
    ) -> tuple[
        list[tuple[int, int, int | None, str, int, list[tuple[int, int]]] | None],
        list[tuple[int, int, int, int, int, int, list[tuple[int, int, int, int | None]]]],
        list[int],
    ]: ...
    def write(self, path: str | Path) -> int: ...

@final
class Schedule:
    def __new__(
        cls,
        machine: Machine,
        collective: str,
        *,
        share_bytes: int,
        chunks: int = 1,
        element_bytes: int = 1,
        root: int = 0,
        method: str = "auto",
        seed: int = 0,
        members: Sequence[int] = (),
    ) -> Schedule: ...
    @staticmethod
    def methods() -> list[str]: ...
    @staticmethod
    def method_table() -> list[tuple[str, str, bool]]: ...
    @property
    def method(self) -> str: ...
    @property
    def chunk_bytes(self) -> list[int]: ...
    @property
    def time_ps(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def bound_ps(self) -> int: ...
    @property
    def bound_is_tightest(self) -> bool: ...
    @property
    def rounds_bound(self) -> int | None: ...
    @property
    def cut(self) -> tuple[list[list[int]], float, int, int]: ...
    @property
    def ends(self) -> int: ...
    @property
    def bound_ms(self) -> float: ...
    @property
    def synthesis_ms(self) -> float: ...
    def __len__(self) -> int: ...
    def transfers(self) -> list[tuple[int, int, int, bool, int]]: ...
    def even(self, path: str | PathLike[str] | None = None) -> Schedule: ...
    def places(self) -> list[int]: ...
    def plan(self) -> Plan: ...

@final
class Memory:
    def __new__(cls, program: Program) -> Memory: ...
    def write(self, buffer: int, data: NDArray[Any], offset: int = 0) -> None: ...
    def read(self, buffer: int, out: NDArray[Any], offset: int = 0) -> None: ...
    def replay(self, timeline: Timeline) -> None: ...
    def flow(self, timeline: Timeline) -> Flow: ...
    def run(
        self,
        timeline: Timeline,
        arrays: Sequence[NDArray[Any]],
        operands: Sequence[NDArray[np.int64]],
        results: Sequence[NDArray[np.int64]],
    ) -> None: ...

@final
class Recipe:
    @staticmethod
    def of(
        program: Program,
        timeline: Timeline,
        operands: Sequence[NDArray[np.int64]],
        results: Sequence[NDArray[np.int64]],
    ) -> Recipe | None: ...
    def run(self, arrays: Sequence[NDArray[Any]]) -> bool: ...

@final
class Flow:
    def origin(
        self, inputs: Memory, buffer: int, start: int, end: int, *, at: int | None = None, most: int = 1048576
    ) -> tuple[list[tuple[tuple[int, int, int, str], int, list[int], bytes]], list[int]]: ...
    def fate(
        self, buffer: int, start: int, end: int, *, most: int = 1048576
    ) -> list[tuple[tuple[int, int, int], int, list[int], list[tuple[int, int, int]], list[tuple[int, int]]]]: ...

@final
class Handle:
    __array_ufunc__: None
    __hash__: None  # type: ignore[assignment]
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def space(self) -> str: ...
    def __add__(self, other: Handle | _Number, /) -> Handle: ...
    def __radd__(self, other: _Number, /) -> Handle: ...
    def __sub__(self, other: Handle | _Number, /) -> Handle: ...
    def __rsub__(self, other: _Number, /) -> Handle: ...
    def __mul__(self, other: Handle | _Number, /) -> Handle: ...
    def __rmul__(self, other: _Number, /) -> Handle: ...
    def __truediv__(self, other: Handle | _Number, /) -> Handle: ...
    def __rtruediv__(self, other: _Number, /) -> Handle: ...
    def __neg__(self) -> Handle: ...
    def __lt__(self, other: Handle | _Number, /) -> Handle: ...
    def __le__(self, other: Handle | _Number, /) -> Handle: ...
    def __gt__(self, other: Handle | _Number, /) -> Handle: ...
    def __ge__(self, other: Handle | _Number, /) -> Handle: ...
    def __eq__(self, other: Handle | _Number, /) -> Handle: ...  # type: ignore[override]
    def __ne__(self, other: Handle | _Number, /) -> Handle: ...  # type: ignore[override]
    @property
    def data(self) -> NoReturn: ...
    def numpy(self) -> NoReturn: ...
    def item(self) -> NoReturn: ...
    def tolist(self) -> NoReturn: ...
    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn: ...
    def __bool__(self) -> NoReturn: ...
    def __float__(self) -> NoReturn: ...
    def __int__(self) -> NoReturn: ...
    def __index__(self) -> NoReturn: ...
    def __len__(self) -> NoReturn: ...
    def __getitem__(self, index: object, /) -> NoReturn: ...
    def __setitem__(self, index: object, value: object, /) -> NoReturn: ...
    def __delitem__(self, index: object, /) -> NoReturn: ...
    def __iter__(self) -> NoReturn: ...

@final
class MemoryRef:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def space(self) -> str: ...

@final
class Peer:
    """The address of a PE: a value for `dir=` of `tl.send`, `tl.recv` and `tl.recv_async`; what `tl.peer` returns. It
    is equal to the text that says the same, `"sip2.cube5.pe0"`."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class RecvFuture:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...

@final
class Tl:
    """The recording context of one kernel call. Pointers are ints (bytes), directions texts or what `peer` returns,
    shapes an int or a tuple of ints, dtypes one of f16 bf16 f32 f64 f8e4m3 f8e5m2 i8 i16 i32 i64 u8 u16 u32
    u64. A call that
    cannot be recorded raises `ahbm.errors.KernelError` with the kernel's file and line."""

    def program_id(self, axis: int = 0) -> int:
        """This PE's index: axis 0 inside its cube, axis 1 the cube's index inside its SIP."""

    def num_programs(self, axis: int = 0) -> int:
        """How many indices `program_id(axis)` runs over."""

    def load(self, ptr: int | MemoryRef, shape: _Shape | None = None, dtype: str | None = None) -> Handle:
        """Reads `shape` elements at byte address `ptr` into a value: of `dtype`, f16 by default. What `tl.ref` names
        has a shape and a dtype, with which those that are given must agree.
        """

    def store(self, ptr: int, value: Handle | MemoryRef) -> None:
        """Writes a value to byte address `ptr`."""

    def load_reduce(self, ptr: int, shape: _Shape, sips: Iterable[int], dtype: str = "f16", op: str = "sum") -> Handle:
        """Reads `shape` elements at byte address `ptr` of every SIP in `sips`, reduced by the switch between them: one
        value.

        The SIPs are ranks of the launch, each at most once; the result is that of reducing them in this order. `op` is
        as in `combine`. The machine needs a switch that reduces.
        """

    def multicast(self, ptr: int, value: Handle | MemoryRef, sips: Iterable[int]) -> None:
        """Writes a value to byte address `ptr` of every SIP in `sips`, copied by the switch between them.

        It is posted: `fence` waits until it has arrived everywhere. The SIPs are ranks of the launch, each at most
        once. The machine needs a switch that reduces.
        """

    def fence(self) -> None:
        """Waits until everything that this PE has multicast has arrived."""

    def ref(self, ptr: int, shape: _Shape, dtype: str = "f16") -> MemoryRef:
        """Names `shape` elements at byte address `ptr` without reading them: a source for `send` and `load`."""

    def zeros(self, shape: _Shape, dtype: str = "f16") -> Handle:
        """A value of zeros."""

    def full(self, shape: _Shape, value: _Number, dtype: str = "f16") -> Handle:
        """A value of equal elements."""

    def arange(self, start: int, end: int, dtype: str = "f16") -> Handle:
        """`start, start + 1, …, end - 1`."""

    def dot(self, a: Handle | MemoryRef, b: Handle | MemoryRef) -> Handle:
        """Matrix product of `(m, k)` and `(k, n)`."""

    def composite(self, op: str, a: Handle | MemoryRef, b: Handle | MemoryRef, out_ptr: int) -> None:
        """`op="gemm"`: the matrix product of `a` and `b` (handles or memory references), stored at `out_ptr`."""

    def trans(self, a: Handle) -> Handle:
        """Transpose of a matrix."""

    def itemsize(self, dtype: str) -> int:
        """Bytes of one element of `dtype`; a constant, so it is no call that costs a dispatch."""

    def cdiv(self, a: int, b: int) -> int:
        """`a / b` rounded up; plain ints."""

    def peer(self, *, sip: int | None = None, cube: int | None = None, pe: int | None = None) -> Peer:
        """The address of a PE: a direction for `send`, `recv` and `recv_async`. A part left out means "same as mine".

        It names the same queue as the text `"sip2.cube5.pe0"`, and a rank behind it keeps its formula, which a text
        loses. A name, so it is no call that costs a dispatch."""

    def maximum(self, a: Handle | _Number, b: Handle | _Number) -> Handle:
        """Element-wise maximum; one operand may be a number."""

    def minimum(self, a: Handle | _Number, b: Handle | _Number) -> Handle:
        """Element-wise minimum; one operand may be a number."""

    def combine(self, a: Handle | _Number, b: Handle | _Number, op: str) -> Handle:
        """The reduction step of a collective: `op` is sum, prod, min, max, avg (which adds; divide at the end),
        or for integers band, bor, bxor."""

    def fma(self, a: Handle | _Number, b: Handle | _Number, c: Handle | _Number) -> Handle:
        """`a * b + c`, rounded once; numbers stand for values of equal elements."""

    def clamp(self, a: Handle, lo: _Number, hi: _Number) -> Handle:
        """`min(max(a, lo), hi)` with numbers as bounds."""

    def exp(self, a: Handle) -> Handle:
        """Element-wise exponential; floats only."""

    def log(self, a: Handle) -> Handle:
        """Element-wise natural logarithm; floats only."""

    def sqrt(self, a: Handle) -> Handle:
        """Element-wise square root; floats only."""

    def sum(self, a: Handle, axis: int | None = None) -> Handle:
        """Sum along `axis`, or of all elements."""

    def max(self, a: Handle, axis: int | None = None) -> Handle:
        """Maximum along `axis`, or of all elements."""

    def min(self, a: Handle, axis: int | None = None) -> Handle:
        """Minimum along `axis`, or of all elements."""

    def softmax(self, a: Handle, axis: int = -1) -> Handle:
        """Softmax along `axis`; floats only."""

    def where(self, cond: Handle, a: Handle | _Number, b: Handle | _Number) -> Handle:
        """`a` where `cond` is not 0, else `b`; one of them may be a number."""

    def cast(self, a: Handle, dtype: str) -> Handle:
        """Conversion to another dtype: floats are rounded to nearest even, and become integers by rounding towards
        zero.
        """

    def send(self, dir: str | Peer, src: Handle | MemoryRef) -> None:
        """Posts `src` (a value, or a memory reference) to the PE behind `dir`; blocks only while no slot is free."""

    def recv(
        self,
        dir: str | Peer | None = None,
        shape: _Shape | None = None,
        dtype: str = "f16",
        mode: str = "return_slot",
        dst: int | None = None,
    ) -> Handle:
        """Receives the next message from `dir`, or (None) from the next direction, in turn, that has one.
        `mode="copy_to_dst"` also stores it at byte address `dst`."""

    def recv_async(self, dir: str | Peer, shape: _Shape, dtype: str = "f16") -> RecvFuture:
        """Posts a receive that completes in the background; `tl.wait` gives its value."""

    def wait(self, future: RecvFuture | Handle) -> Handle:
        """Waits for a posted receive and returns its value. A value is complete and returned as it is."""

_Region: TypeAlias = tuple[int, int, int]

@final
class Plan:
    @property
    def format(self) -> str: ...
    @property
    def collective(self) -> str: ...
    @property
    def root(self) -> int | None: ...
    @property
    def sizes(self) -> tuple[int, int | None]: ...
    @property
    def ranks(self) -> int: ...
    @property
    def ops(self) -> int: ...
    @property
    def queues(self) -> bool: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def buffers(self) -> bool: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def warnings(self) -> list[dict[str, Any]]: ...
    def unit(self, item: int) -> int: ...
    def depth(self, slots: int | None = 0, protocol: str | None = None) -> int | None: ...
    def check(
        self, *, slots: int | None = 0, orders: int = 4, seed: int = 0, calls: int = 2
    ) -> tuple[str, int | None, list[dict[str, Any]], tuple[int, int] | None]: ...
    def lower(
        self,
        machine: Machine,
        *,
        nbytes: int,
        dtype: str,
        op: str = "sum",
        slots: int | None = 0,
        protocol: str | None = None,
        instances: int = 1,
        tier: str = "tcm",
        credit_bytes: int = 16,
        slice_bytes: int | None = None,
        sips: Sequence[int] = (),
        stated: int = 0,
    ) -> tuple[Program, list[list[_Region]], int]: ...
    def save(
        self,
        path: str | PathLike[str],
        *,
        nbytes: int | None = None,
        min_bytes: int | None = None,
        max_bytes: int | None = None,
        link_order: bool = True,
        slots: int | None = None,
    ) -> list[Path]: ...

@final
class PlanBuilder:
    def __new__(
        cls,
        name: str,
        collective: str,
        *,
        ranks: int,
        chunks: int,
        root: int = 0,
        shift: int = 1,
        in_place: bool = False,
        protocol: str = "Simple",
        input: int = 0,
        output: int = 0,
        scratch: int = 0,
        limits: Sequence[tuple[str, int]] = (),
        place: tuple[str, int] | None = None,
    ) -> PlanBuilder: ...
    def thread_block(
        self,
        rank: int,
        *,
        send: int | None = None,
        recv: int | None = None,
        channel: int = 0,
        place: tuple[str, int] | None = None,
    ) -> int: ...
    def step(
        self,
        thread_block: int,
        action: str,
        src: tuple[str, int] | None = None,
        dst: tuple[str, int] | None = None,
        *,
        count: int = 1,
        after: Sequence[int] = (),
        place: tuple[str, int] | None = None,
    ) -> int: ...
    def copy(
        self,
        rank: int,
        input: int,
        output: int,
        count: int = 1,
        *,
        after: bool = False,
        place: tuple[str, int] | None = None,
    ) -> None: ...
    def finish(self) -> Plan: ...

@final
class Watch:
    def __new__(cls, socket: int, grace_s: float, unheard: Callable[[], bool]) -> Watch: ...
    def stop(self) -> None: ...

def read_plan(
    path: str | Path, *, quirks: bool = False, lenient: bool = False, limits: Sequence[tuple[str, int]] = ()
) -> Plan: ...
def convert_plan(
    source: str | Path,
    target: str | Path,
    *,
    nbytes: int | None = None,
    link_order: bool = False,
    slots: int = 0,
    quirks: bool = False,
    limits: Sequence[tuple[str, int]] = (),
) -> list[Path]: ...
def plan_files(path: str | Path) -> list[Path]: ...
def write_recording(
    prefix: str | Path,
    rank: int,
    ranks: int,
    events: Sequence[tuple[str, str, Sequence[int], int, int, Sequence[tuple[str, int | str | Sequence[int]]]]],
    *,
    alike: Sequence[Sequence[tuple[str, Sequence[int]]]] | None = None,
) -> Path: ...
def check_timeline_name(path: str | Path) -> None: ...
def write_job_timeline(
    path: str | Path,
    name: str,
    stretches: Sequence[tuple[Sequence[str], str, str, int, int, tuple[int, bool] | None]],
) -> None: ...
def categories() -> list[str]: ...
def sources() -> str: ...
def collectives() -> list[tuple[str, bool, bool, bool, bool]]: ...
def held(
    collective: str,
    ranks: int,
    count: int,
    root: int = 0,
    src: int = 0,
    dst: int = 1,
    *,
    rank: int | None = None,
) -> list[_Run]: ...
def expected(
    collective: str,
    ranks: int,
    count: int,
    root: int = 0,
    src: int = 0,
    dst: int = 1,
    *,
    rank: int | None = None,
) -> list[_Run]: ...
def mscclpp_statement() -> str: ...
def codes() -> list[tuple[str, str, str, str]]: ...
def plan_formats() -> list[tuple[str, str]]: ...
def plan_limits() -> list[tuple[str, int]]: ...

@final
class MscclppProgram:
    def __new__(
        cls,
        name: str,
        collective: str,
        chunks: Sequence[tuple[int, int]],
        *,
        in_place: bool,
        instances: int,
        protocol: str,
        instr_fusion: bool,
        auto_sync: bool,
        reuse_resources: bool,
        num_threads_per_block: int,
        use_double_scratch_buffer: bool,
        buffer_alignment: int,
        min_message_size: int,
        max_message_size: int,
        quirks: bool = False,
        earlier: MscclppProgram | None = None,
    ) -> MscclppProgram: ...
    @property
    def origin(self) -> str: ...
    def text(self) -> tuple[str, list[dict[str, Any]]]: ...
    def plan(self) -> Plan: ...
    def count_signals(self) -> None: ...
    def close(self) -> None: ...
    def leave_loop(self) -> None: ...
    def rank(self, rank: int) -> tuple[int, int, int]: ...
    def make(self, kind: str, numbers: Sequence[int]) -> list[int]: ...
    def statement(
        self,
        kind: str,
        at: Sequence[int],
        workers: int | Sequence[int] | None,
        pieces: Sequence[tuple[int, int, int, int, int]],
        sync: int,
        function: int,
    ) -> None: ...
    def older(self, name: str, now: str) -> None: ...

_Four: TypeAlias = tuple[int, int, int, int]

@disjoint_base
class MscclRecorder:
    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
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
    def _starts(self, rank: int, count: int) -> None: ...
    def _names(self, rank: int) -> list[object]: ...
    def _length(self, rank: int, buffer: object) -> int | None: ...
    def _value(self, rank: int, buffer: object, index: int) -> tuple[int | None, list[_Four]] | None: ...
    def _wrong(self, collective: str, factor: int, in_place: bool, root: int) -> list[tuple[int, int]]: ...
    def get_ref(self, rank: int, buffer: object, index: int, size: int) -> Ref: ...
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

@final
class Ref:
    @property
    def rank(self) -> int: ...
    @property
    def buffer(self) -> Any: ...
    @property
    def index(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def prog(self) -> MscclRecorder: ...
    def copy(
        self, dst: int, buffer: object = None, index: int = -1, sendtb: int = -1, recvtb: int = -1, ch: int = -1
    ) -> Ref: ...
    def reduce(self, other_chunkref: Ref, sendtb: int = -1, recvtb: int = -1, ch: int = -1) -> Ref: ...
    def split(self, num: int) -> list[Ref]: ...
    def group(self, other: Ref) -> Ref: ...
    def get_origin_index(self, index: int = 0) -> int: ...
    def get_origin_rank(self, index: int = 0) -> int: ...
    def get_dst_index(self, index: int = 0) -> int: ...
    def get_dst_rank(self, index: int = 0) -> int: ...
    def print_chunk_info(self, index: int = 0) -> None: ...

def msccl_chunk(rank: int, buffer: object, index: int, size: int = 1) -> Ref: ...
