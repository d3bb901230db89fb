"""Machines, programs and the recording context of kernels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn, SupportsIndex, TypeAlias, final

import numpy as np
from _typeshed import Incomplete
from numpy.typing import NDArray
from typing_extensions import disjoint_base

from ahbm.errors import DeadlockError

__all__ = [
    "AlgorithmFeatures",
    "AstraRun",
    "AstraSetup",
    "CallFeatures",
    "Compute",
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
    "Profile",
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
    "kernels_of",
    "msccl_chunk",
    "mscclpp_statement",
    "plan_files",
    "plan_formats",
    "plan_limits",
    "pytorch_traces",
    "read_plan",
    "read_profile",
    "sources",
    "trace_sort",
    "unpacked",
    "write_job_timeline",
    "write_recording",
]
_Shape: TypeAlias = int | Sequence[int]
_Number: TypeAlias = float | SupportsIndex
_Four: TypeAlias = tuple[int, int, int, int]
_Place: TypeAlias = tuple[int, int, int]

@final
class AlgorithmFeatures:
    """What an algorithm computes and sends, over all of its ranks."""

    @property
    def algorithm_id(self, /) -> str:
        """Hash of who does what with whom, whatever the size: 16 hex digits."""

    @property
    def arithmetic_intensity(self, /) -> float:
        """Operations per byte sent."""

    @property
    def branch_factor(self, /) -> int:
        """Most chunks of one rank that are equally deep."""

    @property
    def busiest_bytes(self, /) -> int:
        """Bytes of those of the rank that moves most."""

    @property
    def chunk_count(self, /) -> int:
        """Messages and accesses to memory from one rank to another."""

    @property
    def compute_ns(self, /) -> float:
        """Nanoseconds that they take one after the other, and delays."""

    @property
    def compute_to_comm_ratio(self, /) -> float:
        """Nanoseconds of computing per byte sent."""

    @property
    def cut_bytes(self, /) -> int:
        """Bytes from one part of the tightest cut to another."""

    @property
    def dependency_depth(self, /) -> int:
        """Chunks of the longest chain in which each waits for the one before."""

    @property
    def link_ns(self, /) -> float:
        """Nanoseconds that the busiest link or DMA channel is busy."""

    @property
    def messages(self, /) -> int:
        """Messages from one PE to another."""

    @property
    def operations(self, /) -> int:
        """Arithmetic operations on elements."""

    @property
    def ops(self, /) -> int:
        """Operations of the program."""

    @property
    def path_ns(self, /) -> float:
        """Nanoseconds of the longest chain of operations and messages, each on links of its own."""

    @property
    def queue_depth(self, /) -> int:
        """Messages that a queue must hold for the program to end; 0 without queues."""

    @property
    def ranks(self, /) -> int:
        """Ranks that take part."""

    @property
    def rounds_ns(self, /) -> float:
        """Nanoseconds of chunks that go depth by depth: of each depth the slowest chunk and its busiest link or
        DMA channel.
        """

    @property
    def sent_bytes(self, /) -> int:
        """Bytes of them."""

@final
class AstraRun:
    """A run of ASTRA-sim's analytical networks. Times are in ns."""

    @property
    def calls(self, /) -> list[tuple[str, int, int, int, int, int]]:
        """Collectives by kind: name, bytes, ranks of the group, nodes that ended, their time, the longest of them."""

    @property
    def comm_ns(self, /) -> list[int]:
        """Per rank, the time in which a communication node ran."""

    @property
    def cycles(self, /) -> list[int | None]:
        """Per rank, when it ended; None where it never does."""

    @property
    def events(self, /) -> int:
        """Events that the run took."""

    @property
    def exposed(self, /) -> list[int | None]:
        """Per rank, the total without the computation on the GPU; None where it never ends."""

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Findings about ranks that never end, messages that nobody received and algorithm graphs too small for their
        collectives, as dicts of `Finding.from_json`.
        """

    @property
    def gpu_ns(self, /) -> list[int]:
        """Per rank, the time in which a computation ran on the GPU."""

    @property
    def links(self, /) -> list[tuple[int, str, str, int]]:
        """Links that carried something: dimension, from, to, bytes; "switch" is an end. Empty for `congestion_unaware`."""

    @property
    def times(self, /) -> list[list[tuple[int, int, int]]] | None:
        """Per rank and node its id, start and end; None unless asked for."""

    @property
    def traffic(self, /) -> list[tuple[int, int]]:
        """Per dimension, messages and bytes."""

@final
class AstraSetup:
    """A set-up of ASTRA-sim that has been read: network, system, remote memory, process groups, workload. Immutable."""

    def __new__(
        cls,
        /,
        workload: str | PathLike[str],
        system: str | PathLike[str],
        network: str | PathLike[str],
        memory: str | PathLike[str],
        groups: str | PathLike[str] | None = None,
        *,
        limits: Sequence[tuple[str, int]] = ...,
    ) -> AstraSetup:
        """Reads a set-up: PREFIX of `PREFIX.<rank>.et`, system JSON, network YAML, remote memory JSON, groups JSON.

        `limits` are pairs of a name of `plan_limits()` and a number. The interpreter lock is released meanwhile.
        Raises ConfigError (AHBM-C190) for keys that are missing or have an unusable value, FormatError,
        TopologyError, BudgetError, UnsupportedError (AHBM-U234, U235).
        """

    def check(self, /) -> None:
        """Raises the first thing that is wrong before a run, with all others in its `findings`: FormatError for a job that
        is no job, DeadlockError (AHBM-D102, D103) for what never ends, UnsupportedError (AHBM-U235) for what stops
        ASTRA-sim, ConfigError (AHBM-C190).
        """

    @property
    def dimensions(self, /) -> list[tuple[str, int, float, float]]:
        """Per dimension of the network its shape, NPUs, bandwidth in GB/s of 2^30 bytes, and latency in ns."""

    @property
    def nodes(self, /) -> int:
        """Number of nodes over all ranks."""

    @property
    def ranks(self, /) -> int:
        """Number of ranks."""

    @property
    def roofline(self, /) -> tuple[float, float] | None:
        """Peak in 1e12 operations per second and bandwidth of the memory in 1e9 bytes per second, where the roofline is on."""

    def run(
        self,
        /,
        *,
        aware: bool = False,
        queues: int = 1,
        injection_scale: float = 1.0,
        rendezvous: bool = False,
        times: bool = False,
        max_events: int | None = None,
    ) -> AstraRun:
        """Runs. `aware` queues messages at links; `queues` per dimension; `injection_scale` times the endpoint delay;
        `rendezvous` asks for each message; `times` keeps those of every node.

        The interpreter lock is released meanwhile. Raises BudgetError (AHBM-B120, B213), UnsupportedError (AHBM-U235).
        """

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """Keys that change no number, as dicts of `Finding.from_json`."""

@final
class CallFeatures:
    """A collective of a job, before it runs."""

    @property
    def branch_factor(self, /) -> int:
        """Nodes that wait for it."""

    @property
    def dependency_depth(self, /) -> int:
        """Calls and messages of the longest chain that ends in it."""

    @property
    def fused(self, /) -> bool:
        """Tensors are merged before it."""

    @property
    def message_size_bin(self, /) -> int:
        """Binary logarithm of its bytes, rounded down."""

    @property
    def overlap_capable(self, /) -> bool:
        """Some node waits for a chunk of it, or delivers one."""

    @property
    def pipelined(self, /) -> bool:
        """Some computation neither waits for it nor is waited for by it."""

    @property
    def producers(self, /) -> int:
        """Computations that it waits for."""

@final
class Compute:
    """What kernels of a training job take by their class and dimensions, and what their host takes."""

    @property
    def fit(self) -> dict[str, Any] | None:
        """How they were fitted, as the machine has it: a dict, or None."""

    @property
    def source(self, /) -> str | None:
        """Where the numbers are from, if the machine says it."""

    @property
    def values(self) -> dict[str, float]:
        """Every number by its path below `compute` of the topology, e.g. `"units"` or `"host.operation_ns"`."""

@final
class DecisionTree:
    """A decision tree in flat arrays. Immutable."""

    def __len__(self, /) -> int: ...
    def __new__(
        cls,
        inputs: Sequence[str | float],
        feature: Sequence[int],
        threshold: Sequence[float],
        left: Sequence[int],
        right: Sequence[int],
        value: Sequence[int],
    ) -> DecisionTree:
        """Arrays with an entry per node, as scikit-learn has them: `feature` indexes `inputs` and is negative for a leaf,
        `left` is the way where the input is at most `threshold`, `value` the answer of a leaf. An input is the name of
        a fact about the call (`DecisionTree.inputs`), or a number: a fact about the machine.

        Raises ConfigError: `AHBM-C129` for an input that is neither, `AHBM-C181` for arrays that are no tree.
        """

    def choose(self, /, nbytes: int, ranks: int, nodes: int = ..., item: int = ...) -> int:
        """The value of the leaf for a call of `nbytes` bytes of one rank's array."""

    @staticmethod
    def inputs() -> list[str]:
        """Names of the facts about a call that a tree may ask for."""

@final
class Flow:
    """Who touched which memory in which order; made by `Memory.flow`."""

    def __repr__(self, /) -> str: ...
    def fate(
        self, /, buffer: int, start: int, end: int, *, most: int = ...
    ) -> list[tuple[tuple[int, int, int], int, list[int], list[tuple[int, int, int]], list[tuple[int, int]]]]:
        """Where some bytes of a buffer went that stood there before the run.

        Returns places, the first of which is these bytes: as `origin` does, with the places that each went to, memory
        that had it in the end `(buffer, first byte, bytes)`, and the operations that replaced it in memory `(agent,
        operation)`. Raises as `origin`.
        """

    def origin(
        self, /, inputs: Memory, buffer: int, start: int, end: int, *, at: int | None = ..., most: int = ...
    ) -> tuple[list[tuple[tuple[int, int, int, str], int, list[int], bytes]], list[int]]:
        """What some bytes of a buffer were made of at `at` ps (None: in the end), and what that was made of, down to memory
        as it was before the run: `inputs`.

        Returns the places, each behind those that it was made of, and which of them stood in the bytes. A place is
        `((agent, operation, element, dtype), ps, made of, bytes)`, or `((-1, buffer, byte, ""), 0, [], bytes)` before
        the run. Bytes are empty where writers of other sizes made the element. Raises `BudgetError` (AHBM-B124) for more
        than `most` places, `DataError` (AHBM-V121) for bytes that the buffer does not have.
        """

@final
class Gate:
    """Opened once, by any thread; waited at by one."""

    def __new__(cls, /) -> Gate:
        """A closed gate for one wait of a thread that is no rank's: it sleeps at once."""

    def announce(self, /) -> None:
        """Tells the waiting thread that this gate is likely to be the next that opens."""

    def open(self, /) -> None:
        """Lets the waiting thread go on, or whoever comes to wait."""

    def wait(self, /, seconds: float | None = None) -> bool:
        """Blocks until the gate is open, at most `seconds`; returns whether it is. The interpreter lock is released."""

@final
class Gates:
    """The gates of one world's ranks."""

    def __new__(cls, /, ranks: int) -> Gates: ...
    def gate(self, /, rank: int) -> Gate:
        """A closed gate for one wait of `rank`'s thread."""

    def leave(self, /, rank: int) -> None:
        """`rank`'s thread will not wait any more: nobody needs to look out for it."""

@final
class Handle:
    """An immutable value of a kernel: shape, dtype and space, never data.

    Arithmetic (`+ - * /`, unary `-`) and comparisons record operations; comparisons yield 0 or 1 in the
    operands' dtype. Asking for data raises `KernelError` (AHBM-K202): kernels are recorded before data exists.
    """

    __array_ufunc__: Final[bool | None]

    def __add__(self, other: object, /) -> Handle: ...
    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn: ...
    def __bool__(self, /) -> bool: ...
    def __eq__(self, other: object, /) -> Handle: ...
    def __float__(self, /) -> float: ...
    def __ge__(self, other: object, /) -> Handle: ...
    def __getitem__(self, index: object, /) -> NoReturn: ...
    def __gt__(self, other: object, /) -> Handle: ...
    def __index__(self, /) -> int: ...
    def __int__(self, /) -> int: ...
    def __iter__(self) -> NoReturn: ...
    def __le__(self, other: object, /) -> Handle: ...
    def __len__(self, /) -> int: ...
    def __lt__(self, other: object, /) -> Handle: ...
    def __mul__(self, other: object, /) -> Handle: ...
    def __ne__(self, other: object, /) -> Handle: ...
    def __neg__(self, /) -> Handle: ...
    def __radd__(self, other: object, /) -> Handle: ...
    def __repr__(self, /) -> str: ...
    def __rmul__(self, other: object, /) -> Handle: ...
    def __rsub__(self, other: object, /) -> Handle: ...
    def __rtruediv__(self, other: object, /) -> Handle: ...
    def __setitem__(self, index: object, value: object, /) -> NoReturn: ...
    def __sub__(self, other: object, /) -> Handle: ...
    def __truediv__(self, other: object, /) -> Handle: ...
    @property
    def data(self) -> NoReturn:
        """Raises `KernelError`: a value has no data while a kernel is recorded."""

    @property
    def dtype(self, /) -> str:
        """Element type, e.g. `"f16"`."""

    def item(self) -> NoReturn:
        """Raises `KernelError`: a value has no data while a kernel is recorded."""

    @property
    def nbytes(self, /) -> int:
        """Size in bytes."""

    def numpy(self) -> NoReturn:
        """Raises `KernelError`: a value has no data while a kernel is recorded."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, as a tuple of ints; `()` for a scalar."""

    @property
    def space(self, /) -> str:
        """The origin of the value: `"hbm"` (loaded), `"tcm"` (computed) or `"slot"` (received)."""

    def tolist(self) -> NoReturn:
        """Raises `KernelError`: a value has no data while a kernel is recorded."""

@final
class Job:
    """The computations of hosts, the launches they enter and those they wait for. Immutable."""

    def __new__(cls, hosts: Sequence[NDArray[np.uint64]], after: Sequence[int | None]) -> Job:
        """A job of hosts, host r of rank r, that take their steps in order. A step is a u64: its two lowest bits are 0 to
        compute for as many picoseconds as the others say, 1 to arrive at the launch of that number, 2 to wait for its
        end. A launch starts when all hosts that arrive at it have, and the launch of `after` has ended.

        Raises `DataError` (AHBM-V125) for other steps and for launches that `after` has no entry for.
        """

    @property
    def launches(self, /) -> int:
        """Number of launches."""

    @property
    def ranks(self, /) -> list[int]:
        """The rank of every host; in a trace, independent chains of a rank's nodes are hosts of their own."""

    def times(
        self, /, machine: Machine, programs: Sequence[tuple[Program, int] | None], *, max_events: int = ...
    ) -> JobTimes:
        """When everything happens, given per launch its program and the time in ps that it takes alone, None where nothing
        runs.

        Launches that overlap in time are simulated together on `machine` and contend for its links and engines; the
        interpreter lock is released meanwhile. Raises `DeadlockError` (AHBM-D102) when hosts wait for each other,
        `DataError` (AHBM-V125) unless there is an entry per launch, `BudgetError`, and KeyboardInterrupt.
        """

@final
class JobCall:
    """A collective of a recorded job, or a send and its receive."""

    @property
    def alike(self, /) -> int:
        """Position of the first call that says the same of the same ranks."""

    @property
    def bytes(self, /) -> int:
        """One chunk for all_gather and gather, else all that a rank has."""

    @property
    def collective(self, /) -> str:
        """Name; `"send_recv"` for a send."""

    @property
    def copies(self, /) -> int:
        """How many calls of the job it is: itself, and its copies among ranks that are copies of these."""

    @property
    def dtype(self, /) -> str | None:
        """Element type, where the trace has one."""

    @property
    def group(self, /) -> str:
        """Name of its process group, `""` where the trace names none."""

    @property
    def longest(self, /) -> int | None:
        """Longest chunk of an all_to_all in elements, where the trace says how it is split."""

    @property
    def node(self, /) -> str:
        """Name of its node at the first of its ranks."""

    @property
    def op(self, /) -> str | None:
        """Reduction operator, where the trace has one."""

    @property
    def origin(self, /) -> str:
        """The place at which it was written."""

    @property
    def ranks(self, /) -> list[int]:
        """Its ranks in the order of the group; of a send, sender and receiver."""

    @property
    def root(self, /) -> int | None:
        """Global rank of the root, where the trace has one."""

    @property
    def shares(self, /) -> list[list[int]] | None:
        """Elements that the ranks have for each other, where that is not the same: of an all_to_all a row per rank, else
        one row. In the order of `ranks`.
        """

    @property
    def spread(self, /) -> bool:
        """The rows are sums, spread in proportion."""

    @property
    def uneven(self, /) -> bool:
        """Ranks of an all_to_all state other bytes or longest chunks, and not how much each has for each."""

@final
class JobFeatures:
    """A job's collectives, in the order of `Workload.calls`, and sums over the nodes of all ranks."""

    @property
    def arithmetic_intensity(self, /) -> float:
        """Operations per byte communicated."""

    @property
    def calls(self, /) -> list[CallFeatures]:
        """The collectives."""

    @property
    def comm_bytes(self, /) -> int:
        """Bytes that collectives and sends state."""

    @property
    def computations(self, /) -> int:
        """Computations of the accelerator."""

    @property
    def compute_ns(self, /) -> float:
        """Nanoseconds that they take."""

    @property
    def compute_to_comm_ratio(self, /) -> float:
        """Nanoseconds of computing per byte communicated."""

    @property
    def model_intensity(self, /) -> float:
        """Computations per byte communicated."""

    @property
    def operations(self, /) -> int:
        """Arithmetic operations that they state."""

@final
class JobTimes:
    """When everything in a job happened; picoseconds from its start."""

    @property
    def computed_ps(self, /) -> list[list[tuple[int, int]]]:
        """Per host, start and end of every step it computed in."""

    @property
    def ends_ps(self, /) -> list[int]:
        """Per launch, the end of the last of them."""

    @property
    def entered_ps(self, /) -> list[list[int]]:
        """Per host, its time at each arrival."""

    @property
    def hosts_ps(self, /) -> list[int]:
        """Per host, when its last step was over."""

    @property
    def starts_ps(self, /) -> list[int]:
        """Per launch, the common start of its agents."""

    @property
    def together(self, /) -> int:
        """Launches that overlapped others, so that they were simulated together."""

@final
class Limit:
    """The least time of one collective on one machine, as a function of the data. Immutable."""

    def __new__(
        cls,
        /,
        machine: Machine,
        collective: str,
        *,
        ranks: int = 0,
        root: int = 0,
        dst: int = 0,
        cubes: bool = False,
        sips: Sequence[int] = ...,
    ) -> Limit:
        """Bounds `collective` among the first `ranks` SIPs of `machine` (0: all of them), or among those of `sips`, which
        are its ranks in order; with `cubes`, among the cubes of one SIP, all other SIPs taken together as one node more.
        `root` is the rank that is the root of rooted collectives, `dst` the receiver of send_recv, whose sender is `root`.
        The interpreter lock is released meanwhile.

        Raises `UnsupportedError` for networks without a bound (unlimited bandwidth, a single node), and
        ConfigError for an unknown collective.
        """

    @staticmethod
    def around(machine: Machine, sip: int, enters: bool) -> Limit:
        """The bound of so many bytes that leave a SIP, or enter it: what `ps` is given.

        Raises `UnsupportedError` for networks without a bound, ConfigError (AHBM-T201) for a SIP that is not there.
        """

    def by_bandwidth(self, /, nbytes: int) -> bool:
        """True when the tight cut, not the longest way, is what limits `nbytes` per node."""

    @property
    def cut(self, /) -> tuple[int, list[tuple[int, int]], float, int, int]:
        """The tight cut: the number of its parts; the nodes of the part where it is one against all others, as ranges
        (first, after the last); the bandwidth across it in GB/s, the number of links across it, and how many shares have
        to cross it.
        """

    def ps(self, /, nbytes: int) -> int:
        """Least time in ps for `nbytes` per node: its own share of the result where every node has one, else the whole
        buffer.
        """

    def terms(self, /, nbytes: int) -> tuple[int, int]:
        """The two terms of `ps` in ps, which is the larger of them: that of the longest way, and that of the tight cut, 0
        where links carry any number of messages at once.
        """

    @property
    def tightest(self, /) -> bool:
        """True when no cut is tighter and no way longer. False where the search for them ended before it had seen all, and
        where it looks at some only: among a part of the nodes, and, on networks without a regular shape, for all_to_all
        and for all_reduce over links that differ by direction, where no routing is known to match what it found.
        """

@final
class Machine:
    """A resolved machine, immutable."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickles and copies are made anew from the same text, and given the same costs."""

    def __repr__(self, /) -> str: ...
    def _repr_svg_(self, /) -> str:
        """The drawing, where a notebook shows the machine."""

    @property
    def assumed(self, /) -> list[str]:
        """What was assumed where the machine's file was made from another one."""

    @property
    def bands(self, /) -> list[tuple[str, int, int, int, float, float, tuple[float, float] | None]] | None:
        """Where a machine that was fitted to measurements is valid, and how far it was off there at sizes that were held back:
        collective, ranks, first and last bytes of one rank's array, mean and largest error in percent, and what eight of ten
        other clusters of its kind take more than it, in percent, where that is known. None for a machine that was fitted to
        none.
        """

    def caps(self, /, alike: float) -> tuple[float | None, float | None, float | None] | None:
        """GB/s of payload that the protocol of a call or of all runs lets a link between SIPs carry, the way of a SIP between
        nodes, and all ways of a node together; None where the wires themselves have no more than `alike` times as much, and
        without a protocol.
        """

    def carries(self, /, source: Sequence[int], target: Sequence[int]) -> bool:
        """Whether a renumbering of the SIPs that takes every `source[i]` to `target[i]` leaves the machine as it is: what
        runs on the SIPs `source` then takes the same time on the SIPs `target`. Lists of one length, of SIPs.
        """

    def changed(self, /, overrides: Sequence[tuple[str, str]]) -> Machine:
        """The machine with further overrides, as `from_yaml` takes them, laid over its own. Raises as `from_yaml`."""

    def check_computes(self, /) -> None:
        """Raises ConfigError (AHBM-C193) where nobody has said what it computes at."""

    @property
    def compute(self, /) -> Compute | None:
        """What its kernels take by their class and dimensions, and its host; None where the machine has no `compute`."""

    @property
    def cube_h(self, /) -> int:
        """Height of a SIP's cube mesh."""

    @property
    def cube_w(self, /) -> int:
        """Width of a SIP's cube mesh."""

    @property
    def cubes(self, /) -> int:
        """Cubes per SIP."""

    def describe(self, /) -> str:
        """The machine as text: shape, links by class, memories, costs, slot tiers."""

    @property
    def dma_channels(self, /) -> int | None:
        """Channels of a PE's DMA engine in each direction; None: one for each link between SIPs."""

    def features(self, /) -> MachineFeatures:
        """The network between the SIPs in numbers."""

    @staticmethod
    def from_yaml(text: str, origin: str, overrides: Sequence[tuple[str, str]] = ...) -> Machine:
        """Parses, validates and resolves a topology.

        `origin` names the text in errors; `overrides` are pairs of dotted path and YAML scalar, applied before
        validation. The interpreter lock is released meanwhile. Raises `TopologyError` with every finding, `ConfigError`
        (AHBM-C129).
        """

    @property
    def has_fabric(self, /) -> bool:
        """Whether nodes are joined by switches of several tiers, rather than by one spine."""

    @property
    def hash(self, /) -> int:
        """Stable 64-bit hash of everything that influences timing."""

    def kernel_ps(
        self,
        /,
        name: str,
        operations: int,
        nbytes: int,
        *,
        arithmetic: str = ...,
        host: bool = ...,
        kind: str = ...,
        dims: Sequence[int] = ...,
        factors: Sequence[tuple[str, float]] = ...,
    ) -> int:
        """How long a kernel of a training job takes on a SIP, in picoseconds: what a replay gives a computation of this name
        that states no duration.

        `arithmetic` is the type of its operations: "f16" for all of two bytes, "f32", "tf32", "f64", or "f8" for all of one
        byte. `host`: it copies the bytes between the device and its host. `kind` is its class and `dims` are its
        dimensions, at most 10 (docs/device.md); on a machine with `compute` they say how long it takes, and "plain" says
        that only operations and bytes are known. `factors` are pairs of a text and a factor for kernels with the text in
        their name; the first that fits counts. Raises `ConfigError`: AHBM-C205 for an unknown type or class, AHBM-C129 for
        more dimensions, AHBM-C193 where the machine does not say what it computes at.
        """

    def kernels_ps(self, /, kernels: Sequence[tuple[str, Sequence[int], int, int, str, bool]]) -> list[int]:
        """How long each of many kernels takes, in picoseconds: as `kernel_ps` for a class, dimensions, operations, bytes, type
        of the operations, and whether it copies between the device and its host. Raises as `kernel_ps`.
        """

    @property
    def launch_ps(self, /) -> int:
        """The host's start of a collective that runs alone, in ps."""

    def least_by_io(
        self, /, collective: str, sips: Sequence[int], nbytes: int, root: int, dst: int
    ) -> tuple[int, str] | None:
        """The least time in ps that the ports between cubes and I/O chiplets allow a collective of `nbytes` per share among
        the SIPs, whatever runs there, and which port it is; `root` and `dst` are SIPs. None where they limit nothing.
        """

    @property
    def library(self, /) -> list[tuple[str, list[str]]]:
        """The algorithms of the communication library by collective, in the order of the file."""

    def links_between_cubes(self, /, sip: int) -> list[str]:
        """Names of the links between cubes of a SIP that are not dead, the first connection of each port, e.g.
        `"sip0.cube3.ucie_E0"`; none for a SIP that is not there.
        """

    def links_between_sips(self, /) -> list[str]:
        """Names of the links between SIPs that are not dead, e.g. `"sip0->sip1"`."""

    @property
    def node_size(self, /) -> int:
        """SIPs of a node of `topology: nodes`, or of a host of a custom network that says so; 1 in other networks."""

    @property
    def origin(self, /) -> str:
        """The reference that names the topology: a path, or `packaged NAME.yaml`."""

    @property
    def overrides(self, /) -> list[tuple[str, str]]:
        """The overrides that it was made with: pairs of dotted path and YAML scalar."""

    @property
    def parameters(self, /) -> list[tuple[str, str]]:
        """Every parameter by its dotted path, as text with its unit: ps, GB/s, or none."""

    @property
    def pes(self, /) -> int:
        """PEs per cube."""

    @property
    def protocol(self, /) -> str | None:
        """The protocol that all runs use; None where each takes the quickest of those that its size allows."""

    @property
    def protocols(self, /) -> list[Protocol]:
        """The protocols of the communication library, in the order of the file."""

    @property
    def ranges(self, /) -> list[tuple[str, int, int, int]]:
        """The sizes that each protocol was fitted to: its name, ranks, first and last bytes of one rank's array."""

    def reduces(self, /, sips: Sequence[int]) -> bool:
        """Whether a switch reduces what these SIPs send to each other, and copies what goes to them."""

    @property
    def roofline(self, /) -> Roofline:
        """What a SIP computes a training job at."""

    @property
    def sheet(self, /) -> tuple[str | None, str | None]:
        """The accelerator whose data sheet `roofline` is, and that sheet; None for what the machine does not name."""

    @property
    def sip_d(self, /) -> int:
        """Depth of the SIP grid (1 in two dimensions); 0 where the network is no grid."""

    def sip_edges(self, /) -> list[tuple[int, int, str, str, float, int]]:
        """Links between SIPs that are not dead: numbers and names of both ends, where what is no SIP is numbered from the
        number of SIPs on, GB/s and ps.
        """

    @property
    def sip_h(self, /) -> int:
        """Height of the SIP grid; 0 where the network is no grid."""

    @property
    def sip_w(self, /) -> int:
        """Width of the SIP grid; 0 where the network is no grid."""

    @property
    def sips(self, /) -> int:
        """Number of SIPs."""

    @property
    def slice_bytes(self, /) -> int:
        """Bytes in which kernels pass on what arrives, by the protocol of its call or of all runs; 0 where it does not say."""

    @property
    def striped(self, /) -> bool:
        """Whether a library's collective is spread over the interfaces of its SIPs in a node."""

    def svg(self, /) -> str:
        """A drawing of the SIP network and of one SIP, as an SVG document."""

    @property
    def switch_reduces(self, /) -> bool:
        """True when one switch reduces what any group of the SIPs sends, and copies what goes to any group."""

    @property
    def tiers(self, /) -> list[str]:
        """Names of the memory tiers that queue slots can live in, in declaration order."""

    @property
    def topology(self, /) -> str:
        """Name of the SIP network, e.g. `"torus_2d"`."""

    def with_costs(
        self, /, costs: tuple[str | None, int, int | None, int | None, int | None, bool, tuple[int, int]]
    ) -> Machine:
        """The machine as the messages of a call find it: with its protocol at its size, its channels and interfaces. All else
        is that of the machine: parameters, overrides and hash.

        n bytes of one rank's array get 1 / (1 + (ramp_bytes / n)^ramp_exponent) of a protocol's bandwidths. A protocol for
        all runs goes before that of the call. Raises `DataError` (AHBM-V125) for a protocol that the machine does not have.
        """

@final
class MachineFeatures:
    """The network between the SIPs of a machine, in numbers that tell one network from another."""

    @property
    def bandwidth_gbs(self, /) -> list[float]:
        """GB/s of the links: least, median, most."""

    @property
    def bisection_gbs(self, /) -> float:
        """GB/s of these links."""

    @property
    def bisection_links(self, /) -> int:
        """Fewest links that leave a half of the SIPs."""

    @property
    def cubes(self, /) -> int:
        """Cubes of a SIP."""

    @property
    def diameter(self, /) -> int:
        """Links of the longest shortest way."""

    @property
    def dimensions(self, /) -> list[int]:
        """Extents that are more than 1."""

    @property
    def latency_ns(self, /) -> list[float]:
        """Nanoseconds of the links: least, median, most."""

    @property
    def least_degree(self, /) -> int:
        """Fewest links that leave a SIP."""

    @property
    def links(self, /) -> int:
        """Directed links between SIPs."""

    @property
    def most_degree(self, /) -> int:
        """Most links that leave a SIP."""

    @property
    def pes(self, /) -> int:
        """PEs of a cube."""

    @property
    def ranks(self, /) -> int:
        """SIPs."""

@final
class Memory:
    """One memory image of a program: all buffers, zero at first, allocated when first touched."""

    def __new__(cls, /, program: Program) -> Memory:
        """All-zero memory for `program`."""

    def __repr__(self, /) -> str: ...
    def flow(self, /, timeline: Timeline) -> Flow:
        """In which order memory was touched; replays as `replay` does where agents share memory. Raises as `replay`, and
        `DeadlockError` (AHBM-D191) for a timeline that was not recorded.
        """

    def read(self, buffer: int, out: NDArray[Any], offset: int = 0) -> None:
        """Copies a buffer, from byte `offset` on, into a writable C-contiguous array of any numeric dtype.

        Raises `DataError` when the buffer does not have that many bytes.
        """

    def replay(self, /, timeline: Timeline) -> None:
        """Replays the effects of one of the program's timelines on what `write` has put here, for `read`; the interpreter
        lock is released meanwhile. Raises `DataError`, `BudgetError` when the host cannot hold a buffer.
        """

    def run(
        self,
        timeline: Timeline,
        arrays: Sequence[NDArray[Any]],
        operands: Sequence[NDArray[np.int64]],
        results: Sequence[NDArray[np.int64]],
    ) -> None:
        """Runs the program on arrays: copies pieces of each into buffers, replays the timeline, and copies pieces back.

        The arrays are writable, C-contiguous and of any numeric dtype. Per array, each row of its
        `operands`, shape (n, 4), is: buffer, first byte in the array, first byte in the buffer, bytes; of its `results`
        too. The interpreter lock is released meanwhile, unless that takes longer than the replay. Raises `DataError`
        when a piece does not fit or the timeline is of another program, `BudgetError` when the host cannot hold a
        buffer.
        """

    def write(self, buffer: int, data: NDArray[Any], offset: int = 0) -> None:
        """Copies a C-contiguous array of any numeric dtype into a buffer, from byte `offset` on.

        Raises `DataError` when it does not fit, `BudgetError` when the host cannot hold the buffer.
        """

@final
class MemoryRef:
    """A piece of the tensor, named but not read: a source for `tl.send` and `tl.load`."""

    def __repr__(self, /) -> str: ...
    @property
    def dtype(self, /) -> str:
        """Element type, e.g. `"f16"`."""

    @property
    def nbytes(self, /) -> int:
        """Size in bytes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, as a tuple of ints."""

    @property
    def space(self, /) -> str:
        """Always `"hbm"`: the tensor's memory."""

@disjoint_base
class MscclRecorder:
    """Records the statements of a MSCCLang program, of which `ahbm.dsl.msccl.MSCCLProgram` is the public face."""

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
    ) -> None:
        """Starts the recording: the two buffers that every rank has, ranks, and where the collective keeps buffers that are
        a part of others (`"same"`, `"output is input"`, `"input in output"`, `"output in input"`, `"asked"`).
        """

    def _buffer(
        self, rank: int, buffer: object, kind: str, chunks: Sequence[_Four | None], other: object | None = None
    ) -> None:
        """A buffer of a rank: `"list"` and `"slice"` (which grows) of chunks, `"same"` as another buffer."""

    def _length(self, rank: int, buffer: object) -> int | None:
        """Slots of a buffer; None: the rank has no such buffer."""

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
    ) -> tuple[Plan, str, list[dict[str, Any]]]:
        """The plan, its text, and the notes about it."""

    def _names(self, rank: int) -> list[object]:
        """Keys of a rank's buffers."""

    def _starts(self, /, rank: int, count: int) -> None:
        """The first `count` slots of every rank's input hold an input of the program."""

    def _value(self, rank: int, buffer: object, index: int) -> tuple[int | None, list[_Four]] | None:
        """What is in a slot: None, or the rank that made the sum (None: no sum) and chunks of inputs."""

    def _wrong(self, /, collective: str, factor: int, in_place: bool, root: int) -> list[tuple[int, int]]:
        """Slots (rank, index) of the result that do not hold what the collective promises."""

    def get_ref(self, rank: int, buffer: object, index: int, size: int) -> Ref:
        """A reference to slots. `prog.get_ref` of upstream."""

@final
class MscclppProgram:
    """A program of the MSCCL++ DSL under construction.

    `chunks` are those of each rank's input and output. `quirks` does what the language's own compiler does, its defects
    included; `earlier` is the program before in the same process then, whose barriers it counts on.
    """

    def __new__(
        cls,
        /,
        name: str,
        collective: str,
        chunks: Sequence[Sequence[int]],
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
    def close(self, /) -> None:
        """Takes no statements any more."""

    def count_signals(self, /) -> None:
        """Whether every signal has a wait. Raises `ProgramError` (AHBM-A104)."""

    def leave_loop(self, /) -> None:
        """The loop ends."""

    def make(self, /, kind: str, numbers: Sequence[int]) -> list[int]:
        """What statements name, by `kind`: a `memory` or `port` channel of (destination, source) gives its number, source
        and destination; a `switch` over (space, ranks ...) its ranks, each with its number there; a `semaphore` of
        (rank, value) the rank and its number; `scratch` of (rank, size) the rank, the first chunk and the one after the
        last; a `loop` of (unit, chunks) opens. Raises `ProgramError` (AHBM-A101, AHBM-A102).
        """

    def older(self, /, name: str, now: str) -> None:
        """Notes that the author used an older name."""

    @property
    def origin(self, /) -> str:
        """Base name of the file, and the line, where the program begins."""

    def plan(self, /) -> Plan:
        """The plan, with the author's lines. Raises as `text`, and as `read_plan`."""

    def rank(self, /, rank: int) -> tuple[int, int, int]:
        """A rank, and the chunks of its input and output. Raises `ProgramError` (AHBM-A102)."""

    def statement(
        self,
        kind: str,
        at: Sequence[int],
        workers: int | Sequence[int] | None,
        pieces: Sequence[tuple[int, int, int, int, int]],
        sync: int,
        function: int,
    ) -> None:
        """Records a statement, by the author's name for it. `at` is who executes it: of a channel 0 for memory or 1 for a
        port, number, source and destination; of a switch the rank, its number, first chunk and chunks; of a semaphore
        the rank and its number; of a barrier the rank and its thread blocks; else the rank. `workers` are the thread
        blocks: one, several, or None. `sync` is the value of `SyncType`, `function` the position in sum, min, max.
        Raises `ProgramError` (AHBM-A101, AHBM-A102).
        """

    def text(self) -> tuple[str, list[dict[str, Any]]]:
        """The plan as text, as the language's own compiler prints it, and notes: dicts with the keys of `Finding.to_json`.

        Raises `ProgramError` (AHBM-A103, AHBM-A104).
        """

@final
class Neighbour:
    """A process whose memory the system lets this one touch. Where it does not, methods raise OSError."""

    def __new__(cls, /, pid: int) -> Neighbour: ...
    @staticmethod
    def admit(pid: int) -> None:
        """Lets the process `pid` touch the memory of this one, where the system asks for that."""

    def read(self, address: int, out: NDArray[Any]) -> None:
        """Fills a writable C-contiguous array of any numeric dtype with what is at `address` there. The interpreter lock is
        released meanwhile. Raises `DataError` for another array, OSError where there is no such memory.
        """

    def write(self, address: int, source: NDArray[Any]) -> None:
        """Copies a C-contiguous array of any numeric dtype to `address` there. The interpreter lock is released meanwhile.
        Raises `DataError` for another array, OSError where there is no such memory.
        """

@final
class Peer:
    """The address of a PE: a value for `dir=` of `tl.send`, `tl.recv` and `tl.recv_async`; what `tl.peer` returns.

    It is equal to the text that says the same, `"sip2.cube5.pe0"`.
    """

    def __eq__(self, other: object, /) -> bool: ...
    def __ge__(self, other: object, /) -> Any: ...
    def __gt__(self, other: object, /) -> Any: ...
    def __hash__(self, /) -> int: ...
    def __le__(self, other: object, /) -> Any: ...
    def __lt__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str: ...

@final
class Plan:
    """An algorithm that was read from a file, or made in memory. Immutable; knows no machine."""

    def __repr__(self, /) -> str: ...
    @property
    def buffers(self, /) -> bool:
        """True when it says which bytes go where; a Chakra trace may say only how many."""

    def check(
        self, *, slots: int | None = 0, orders: int = 4, seed: int = 0, calls: int = 2
    ) -> tuple[str, int | None, list[dict[str, Any]], tuple[int, int] | None]:
        """Whether it computes what it says, whatever the order of its thread blocks.

        `slots` is the depth of queues, `None` unbounded, 0 what the runtime has for the protocol; `seed` chooses the random ones among the `orders` of the
        thread blocks that are tried; `calls` is how often the plan is issued in a row. Returns the verdict
        (`"correct"`, `"wrong"`, `"deadlock"`, `"race"`, `"no_expectation"`, `"unsupported"`, `"malformed"`), the least
        depth that completes, findings as in `warnings`, and for a correct plan what a run with numbers has confirmed:
        elements compared, and the time of that run in picoseconds. The interpreter lock is released meanwhile.
        """

    @property
    def collective(self, /) -> str:
        """Name of what it computes, `"custom"` when no post-condition is known."""

    def depth(self, /, slots: int | None = ..., protocol: str | None = ...) -> int | None:
        """Messages that its queues hold, `slots` as in `lower`: where that leaves it open, those of `protocol`, without one of
        the plan's own. None without queues.
        """

    @property
    def format(self, /) -> str:
        """Name of the file format, e.g. `"msccl_xml"`; `"plan"` for one that was made in memory."""

    @property
    def in_place(self, /) -> bool:
        """True when it runs with input and output in one memory."""

    def lower(
        self,
        /,
        machine: Machine,
        *,
        nbytes: int,
        dtype: str,
        op: str = ...,
        slots: int | None = ...,
        protocol: str | None = ...,
        instances: int = ...,
        tier: str = ...,
        credit_bytes: int = ...,
        slice_bytes: int | None = ...,
        sips: Sequence[int] = ...,
        stated: int = ...,
    ) -> tuple[Program, list[list[tuple[int, int, int]]], int]:
        """The plan as a program on `machine`, for `nbytes` bytes of the larger of operand and result.

        `slots` is the depth of queues, `None` unbounded, 0 what the runtime has for the protocol; `tier` names the memory of their slots. `slice_bytes` is the
        size of the largest message, None what the protocol has. `sips` are the SIPs of the ranks, without any the
        first; ranks that only relay come last. Returns the program, per rank that takes part the `(buffer, offset,
        bytes)` of operand, result and scratch, and the bytes of a chunk. Without `buffers` there are no such ranks and
        messages are zeros; `nbytes` is 0 where the trace states sizes, and `stated` the size for which it states them: they
        are scaled. The interpreter lock is released meanwhile.
        Raises `FormatError`, `LintError`, `BudgetError`, `UnsupportedError`.
        """

    @property
    def ops(self, /) -> int:
        """Number of steps over all ranks, as the file counts them."""

    @property
    def out_of_place(self, /) -> bool:
        """True when it is for calls whose input and output are two memories; a plan may be for both kinds."""

    @property
    def protocol(self, /) -> str | None:
        """The protocol that the plan of thread blocks was written for: "Simple", "LL" or "LL128"; None for others."""

    @property
    def queues(self, /) -> bool:
        """True when its thread blocks talk through queues, whose depth a run has to choose."""

    @property
    def ranks(self, /) -> int:
        """Number of ranks."""

    @property
    def root(self, /) -> int | None:
        """The rank that a rooted collective is rooted at; None for others."""

    def save(
        self,
        /,
        path: str | PathLike[str],
        *,
        nbytes: int | None = ...,
        min_bytes: int | None = ...,
        max_bytes: int | None = ...,
        link_order: bool = ...,
        slots: int | None = ...,
    ) -> list[Path]:
        """Writes it in the format that the name says: .xml, .json or .et. Returns the paths, one per rank for .et.

        `nbytes` is the size by which a trace states its messages; `link_order` orders its sends by link; `slots` is how
        many messages the queues of an execution plan hold, None what it was read with. `min_bytes` and
        `max_bytes` (0 is unlimited) are the sizes it is meant for; None keeps what it says. The
        interpreter lock is released meanwhile. Raises `UnsupportedError` (AHBM-U291, U292) for what the format cannot
        express and `FormatError` (AHBM-F102) for what cannot be written; then nothing was.
        """

    @property
    def sizes(self, /) -> tuple[int, int | None]:
        """The sizes of one rank's array in bytes that it is meant for, as it says: the least, and the most, None for any."""

    def unit(self, /, item: int) -> int:
        """Sizes, in bytes of the larger of operand and result, are multiples of this for elements of `item` bytes; 1 for a
        trace without buffers.
        """

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """Why a real runtime would not load it or would misread it: dicts with the keys of `Finding.to_json`."""

@final
class PlanBuilder:
    """Writes a `Plan` for `ranks` ranks. The larger of operand and result has `chunks` chunks.

    `collective` is one of `collectives()` but barrier, `"all_to_next"`, or `"custom"` for what no check can know;
    in a send_recv every rank sends to the rank `shift` after it. `scratch`
    chunks belong to every rank; `custom` plans also say how large `input` and `output` are. `limits` are those of
    `read_plan`. Thread blocks, steps and copies remember the caller's line, or the `place` (file, line) they are given:
    findings name it. Raises `ConfigError` (AHBM-C205, C120, C210), `FormatError` (AHBM-F119), `BudgetError`.
    """

    def __new__(
        cls,
        /,
        name: str,
        collective: str,
        *,
        ranks: int,
        chunks: int,
        root: int = ...,
        shift: int = ...,
        in_place: bool = ...,
        protocol: str = ...,
        input: int = ...,
        output: int = ...,
        scratch: int = ...,
        limits: Sequence[tuple[str, int]] = ...,
        place: tuple[str, int] | None = ...,
    ) -> PlanBuilder: ...
    def copy(
        self,
        /,
        rank: int,
        input: int,
        output: int,
        count: int = ...,
        *,
        after: bool = ...,
        place: tuple[str, int] | None = ...,
    ) -> None:
        """A copy of `count` chunks from input to output that no thread block does: before all of them start, or, `after`,
        once all have ended. In place nothing happens. Raises `ConfigError` (AHBM-C120).
        """

    def finish(self, /) -> Plan:
        """The plan. Raises `FormatError` (AHBM-F115 to F119) for one that cannot be followed; either way nothing can be
        added any more.
        """

    def step(
        self,
        /,
        thread_block: int,
        action: str,
        src: tuple[str, int] | None = ...,
        dst: tuple[str, int] | None = ...,
        *,
        count: int = ...,
        after: Sequence[int] = ...,
        place: tuple[str, int] | None = ...,
    ) -> int:
        """The next step of a thread block; returns its id.

        `action` is a step type of MSCCL-IR: s, r, rcs, rrc, rrs, rrcs, cpy, re, nop. `src` and `dst` are a buffer
        (i, o or s for scratch) and a chunk; without one of them both are the same. `after` are steps of the rank's other
        thread blocks that have to have run. Raises `UnsupportedError` (AHBM-U201), `ConfigError` (AHBM-C203, C204),
        `FormatError` (AHBM-F115).
        """

    def thread_block(
        self,
        /,
        rank: int,
        *,
        send: int | None = ...,
        recv: int | None = ...,
        channel: int = ...,
        place: tuple[str, int] | None = ...,
    ) -> int:
        """A thread block of `rank`, which may send to one rank and receive from one, over a channel; returns its id.

        One thread block sends, and one receives, on each channel between two ranks. Raises `ConfigError` (AHBM-C120).
        """

@final
class Profile:
    """What one accelerator did in a trace of PyTorch's profiler, operation by operation."""

    @property
    def device(self, /) -> tuple[str | None, int | None, int | None]:
        """The accelerator's name, units and bytes of memory; None for what the trace does not say."""

    @property
    def kernels(self) -> NDArray[np.int64]:
        """Per kernel, copy and fill of the device, in the order of starts: the row of the innermost operation that launched it
        (-1: none), the place of its name, its stream, its start and its duration in ps, and the bytes that it states.
        """

    @property
    def names(self, /) -> list[str]:
        """Names of kernels."""

    @property
    def operations(self) -> NDArray[np.int64]:
        """Per operation of the host, in the order of threads and starts: the place of its signature, the row of the operation
        that it is part of (-1: none), its thread, its start and its duration in ps.
        """

    @property
    def signatures(self, /) -> list[tuple[str, str]]:
        """Names of operations, each with what it states of its operands, as a JSON object: "Input Dims", "Input type", "Input
        Strides", "Concrete Inputs".
        """

    @property
    def stacks(self, /) -> bool:
        """Whether it recorded stacks of Python, which slow the host down."""

@final
class Program:
    """A program to run: agents, their operations, queues and buffers. Immutable; made by `ProgramBuilder.finish`."""

    def __repr__(self, /) -> str: ...
    @property
    def agents(self, /) -> int:
        """Number of agents (PEs that run a kernel)."""

    @property
    def calls(self, /) -> int:
        """Number of `tl` calls that were captured to make it."""

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
    ) -> tuple[str, list[dict[str, Any]]]:
        """Whether the program is right for elements of `dtype`, whatever the order of its agents, and when it is issued
        `calls` times in a row.

        `operands`: `(rank, buffer, first byte in the buffer, bytes, first byte in the rank's array)`. `results`:
        `(rank, buffer, first byte, bytes, set)`. A set lists the contributions, ranks and indices of their elements,
        that go into the first element; the next element takes the next ones. `names` names buffers; `owners` gives, per
        buffer of operands or results, the rank of the agents that they belong to. With `repeats`, a contribution may take
        part more than once; with `synchronises`, no rank may end before every rank has started. `op` is the reduction of
        the contributions, None where a result is one of them, and `parties` what an average divides by. Returns the
        verdict and findings as `Plan.check` does; the interpreter lock is released meanwhile. Raises KernelError
        (AHBM-K207) for an unknown dtype, and for an unknown `op` as `tl.combine`.
        """

    def collisions(self, /) -> list[tuple[str, list[tuple[int, int]], int, list[str]]]:
        """Links that more of the program's flows take than would if they were spread evenly over equal ways, the most crowded
        first: the link, its flows by the SIPs that send and receive, how many flows had the choice, and the links of it.
        """

    def delayed(self, /, pauses: Sequence[tuple[int, int, int]]) -> Program:
        """The program with pauses: `(agent, op, ps)` holds an agent up for `ps` picoseconds before one of its operations.
        The work is the same, its times are not.
        """

    def describe(self, /, agent: int, op: int) -> tuple[str, str]:
        """An operation in words and where it was written (`""`: unknown). Raises `ConfigError` (AHBM-C129)."""

    def features(self, /, limit: Limit | None = ...) -> AlgorithmFeatures:
        """What the program computes and sends, and what waits for what, without a run; the interpreter lock is released
        meanwhile. `limit`: the bound whose tight cut `cut_bytes` cross; without one they are 0. Raises `DeadlockError`
        (AHBM-D201) for a program that gets stuck, and KeyboardInterrupt.
        """

    @property
    def hash(self, /) -> int:
        """Stable 64-bit hash of everything that influences a run."""

    def latency_without(self, /, lines: Sequence[int]) -> int:
        """The latency in ps if the operations of these lines cost nothing: dispatch, transfers, messages, slots, credits and
        math take no time there, waits do. Lines are numbered as in `Timeline.critical_path`.

        Raises as `simulate`.
        """

    def least_by_engines(
        self, /, collective: str, sips: Sequence[int], nbytes: int, root: int, dst: int, by_tile: bool
    ) -> tuple[int, str] | None:
        """The least time in ps that the engines and ports of this program's PEs allow a collective of `nbytes` per share among
        `sips`, and which of them it is; `root` and `dst` are SIPs. A rank is a SIP or, `by_tile`, a cube. None where they
        limit nothing, and where PEs do not exchange messages alone.

        Raises `ConfigError` (AHBM-C129).
        """

    @property
    def lengths(self, /) -> list[int]:
        """Number of operations of every agent, in the order they were added."""

    def line(self, /, agent: int, op: int) -> str:
        """Where an operation was written, the same in every iteration of a loop (`""`: unknown). Raises `ConfigError`
        (AHBM-C129).
        """

    @property
    def machine(self, /) -> Machine:
        """The machine that was given for the program."""

    @property
    def memory_bytes(self, /) -> int:
        """Bytes of the buffers and queue slots at the PE that has most; a queue's slots are at its receiver."""

    @property
    def name(self, /) -> str:
        """Name for people."""

    def on(self, /, machine: Machine, doubled: Sequence[int] = ..., instant: Sequence[int] = ...) -> Program:
        """The same program on another machine of the same shape and slot tiers. Of the links with these numbers
        (`Timeline.link_use`), the `doubled` ones have twice the bandwidth there, the `instant` ones no latency.

        Raises `ConfigError` (AHBM-C146) for a machine of another shape, C129 for links that are none, and `LintError`
        for a machine that cannot hold the program.
        """

    @property
    def ops(self, /) -> int:
        """Number of operations over all agents."""

    def orders(
        self,
        /,
        *,
        dtype: str,
        operands: Sequence[tuple[int, int, int, int, int]],
        results: Sequence[tuple[int, int, int, int, int]],
        parties: int,
    ) -> tuple[list[str], list[tuple[int, int, int, int]]] | None:
        """In which orders the program adds up the elements of `parties` arrays of `dtype`, read off its operations; None
        where they do not say (`ahbm_check::orders`).

        `operands`, `results`: `(party, buffer, first byte in the buffer, bytes, first byte in the party's array)`.
        Returns the orders, fully bracketed, by party, and per run of elements: the party, its first element and its end,
        and the index of its order. The interpreter lock is released meanwhile. Raises KernelError (AHBM-K207) for an
        unknown dtype.
        """

    def place(self, /, agent: int) -> str:
        """Physical place of an agent, e.g. `"sip 0 cube 3 pe 0"`. Raises `ConfigError` (AHBM-C129)."""

    def plan(
        self,
        /,
        *,
        name: str,
        collective: str,
        root: int,
        nranks: int,
        nbytes: int,
        dtype: str,
        slots: int,
        limits: Sequence[tuple[str, int]] = ...,
    ) -> Plan:
        """The program of a kernel as a plan: what its agents, one per rank, do with chunks of their arrays.

        `name` is the plan's; a rank's array has `nbytes` bytes of `dtype`, and is the only buffer of its agent. `slots`
        is how many messages a queue holds. The interpreter lock is released meanwhile. Raises `UnsupportedError`
        (AHBM-U294) for what a plan cannot express, `BudgetError`, KernelError (AHBM-K207) for an unknown dtype.
        """

    def protocols(self, /, alike: float) -> list[tuple[str, int, tuple[float | None, float | None, float | None]]]:
        """The protocols of its calls: the name, bytes of one rank's array, 0 where they are not known, and what
        `Machine.caps` says with `alike`.
        """

    @property
    def ranks(self, /) -> list[int]:
        """The rank of every agent."""

    def simulate(
        self, /, *, record: bool = ..., detail: bool = ..., max_events: int = ..., stuck: bool = ..., fold: bool = ...
    ) -> Timeline:
        """Runs the timing pass on the program's machine; the interpreter lock is released meanwhile.

        `record` keeps the time of every operation, which views and some replays need; `detail` also keeps why it took
        that long. With `stuck`, a deadlock is no error: the timeline goes as far as the run (`Timeline.deadlock`). Raises `DeadlockError`, `BudgetError` after `max_events` engine events or for more detail than 2 GB
        hold, and KeyboardInterrupt. Where nothing is kept, one of the ranks that do the same may be simulated for all of
        them, at the same times; `fold=False` simulates every rank.
        """

    def text(self, /) -> str:
        """The program as text, for people and for golden files."""

    @property
    def tiers(self, /) -> list[str]:
        """Names of the memory tiers that the program's queue slots live in, in order of first use."""

    def write_trace(self, /, timeline: Timeline, prefix: str | PathLike[str]) -> list[Path]:
        """Writes a recorded timeline as a post-execution trace, `PREFIX.<rank>.et`: every operation with the time it took.

        Returns the paths that were written. Raises `FormatError` for files that cannot be written, `DataError` for a
        timeline that was not recorded or belongs to another program.
        """

@final
class ProgramBuilder:
    """Writes a `Program` for one machine.

    `n_slots` messages of `slot_bytes` (None: the largest message of each queue) fit a queue; slots live in the
    memory `tier`; credits are messages of `credit_bytes`. A kernel may make `op_budget` `tl` calls, and a
    launch at all places together `all_ops`.
    Raises `ConfigError` for an unknown tier.
    """

    def __new__(
        cls,
        /,
        machine: Machine,
        name: str,
        *,
        n_slots: int,
        slot_bytes: int | None,
        tier: str,
        credit_bytes: int,
        op_budget: int,
        all_ops: int = ...,
        call_lines: bool = False,
    ) -> ProgramBuilder: ...
    def agent(
        self, /, group: int, coord: tuple[int, int, int], place: tuple[int, int, int], body: int, buffers: Sequence[int]
    ) -> None:
        """Adds an agent: the PE at physical `place` runs `body`, seen by its group at virtual `coord`.

        `buffers[i]` is the buffer behind the body's view `i`. Raises `TopologyError` for places and coordinates
        that do not exist, `LintError` when two agents of a group stand at one coordinate, `ConfigError` for
        ids this builder did not hand out.
        """

    def agents(
        self,
        /,
        group: int,
        bodies: Sequence[int],
        places: Sequence[tuple[int, int, int]],
        cubes: Sequence[int],
        nbytes: int,
    ) -> int:
        """Adds the agents of a launch, those of rank 0's cubes first, and a buffer of `nbytes` for each of them in the HBM
        slice of its PE; returns the id of the first buffer, which the others follow in order of the agents.

        The agent that its group sees at `(rank, i, 0)` runs `bodies[rank * len(cubes) + i]` at the physical place of its
        rank, `cubes[i]` cubes further; the body's view `k` is the buffer of the rank's agent `k`. Raises as `agent`, and
        `TopologyError` (AHBM-T019) with the kernel's line for a call for several ranks between which no switch reduces.
        """

    def buffer(self, /, place: tuple[int, int, int], nbytes: int, space: str = "hbm") -> int:
        """A buffer of `nbytes` at a physical `(sip, cube, pe)`; returns its id.

        `space` is `"hbm"` (the PE's slice), `"tcm"` (the PE's own), `"sram"` (the cube's) or `"host"` (behind the
        SIP's I/O chiplet). Raises `TopologyError` for a place that is not on the machine.
        """

    def capture(
        self,
        kernel: Callable[..., None],
        args: tuple[object, ...],
        coord: _Place,
        num_programs: tuple[int, int],
        views: Sequence[tuple[int, int]],
        dtype: str,
    ) -> int:
        """Calls `kernel(*args, tl=tl)` once and records it; returns the id of its body. Equal bodies have one id.

        `coord` is the virtual `(sip, cube, pe)` the kernel sees, `num_programs` the extents of axes 0 (PEs) and 1
        (cubes). `views[i]` = (virtual address, bytes) is where the kernel finds the body's buffer `i`, which
        holds elements of `dtype`. That of SIP `s` in a call for several is buffer `(1 + s) * len(views) + i`. Raises `KernelError` or `BudgetError` with the kernel's file and line;
        KeyboardInterrupt and errors of `ahbm.errors` raised by the kernel pass through.
        """

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
    ) -> list[int]:
        """Calls `kernel(*before, rank, *after, tl=tl)` for every cube of every rank, or for some that stand for the others,
        and returns the ids of the bodies: those of rank 0's cubes, then those of rank 1's, and so on.

        Virtual coordinates are `(rank, cube, 0)`; `views` and `dtype` are as in `capture`, and so are the bodies.
        `again` is the arguments for the calls that repeat one. With `by_class`, ranks and cubes that take the same path
        through the kernel are captured by one call, and one of them by a second call, which must record the same.

        With `expected`, what an earlier such call returned, it is compared with it, and counts no calls.

        Raises `KernelError` (AHBM-K216) with both lines when the kernel does something else the second time, and as
        `capture`.
        """

    def finish(self, /, *, unmatched: bool = ...) -> Program:
        """Resolves directions into queues and checks everything that can be checked before a run.

        With `unmatched`, messages without a partner may stay (`AHBM-L104`, `L107`): a run ends in the deadlock that
        they are. The builder is used up. Raises `LintError` with all findings.
        """

    def group(
        self,
        /,
        *,
        topology: str | None = None,
        sips: int | None = None,
        w: int = 0,
        h: int = 0,
        d: int = 0,
        cube_w: int | None = None,
        cube_h: int | None = None,
        pes: int | None = None,
    ) -> int:
        """Opens a group of agents that see each other, over virtual coordinates; returns its id.

        Every default is the machine's own shape. `w`, `h`, `d` are the extents of a SIP grid (0: a square or
        cube of `sips`). Raises `TopologyError` when the shape does not work out.
        """

    def recapture(
        self,
        kernel: Callable[..., None],
        args: tuple[object, ...],
        coord: _Place,
        num_programs: tuple[int, int],
        views: Sequence[tuple[int, int]],
        dtype: str,
        body: int,
    ) -> None:
        """Calls a kernel again, as `capture` did when it returned `body`, and compares; the program stays as it is.

        Raises `KernelError` (AHBM-K216) with both lines when the kernel does something else this time, and as `capture`.
        """

@final
class Protocol:
    """A protocol of a machine's library: which calls it is used for, and whether bandwidths depend on their size."""

    @property
    def algorithms(self, /) -> list[str]:
        """The algorithms that it is used with; empty for all."""

    @property
    def by_size(self, /) -> bool:
        """Whether bandwidths depend on the size of a call."""

    @property
    def channels(self, /) -> int | None:
        """Most channels of a call; None: it has none."""

    def is_for(self, /, nbytes: int, ranks: int) -> bool:
        """Whether the library uses it for `nbytes` bytes of one rank's array among `ranks` ranks."""

    @property
    def name(self, /) -> str:
        """Its name."""

    @property
    def slots(self, /) -> int | None:
        """Messages a queue holds; None as the algorithm says."""

    @property
    def wires(self, /) -> tuple[float | None, float | None]:
        """GB/s of the links, and of the network interfaces, that its bandwidths were measured with; None: they hold over all."""

@final
class Recipe:
    """How the results of a program are made of its operands, in place and without buffers; the bits are those of a replay."""

    @staticmethod
    def of(
        program: Program,
        timeline: Timeline,
        operands: Sequence[NDArray[np.int64]],
        results: Sequence[NDArray[np.int64]],
    ) -> Recipe | None:
        """The recipe of what `Memory.run` does with these arguments; None where the data cannot be followed so, and that
        must do it. Raises `DataError` when a piece does not fit or the timeline is of another program.
        """

    def run(self, arrays: Sequence[NDArray[Any]]) -> bool:
        """Makes the results in `arrays`, writable, C-contiguous and of any numeric dtype; False, and nothing done, where two
        of them share memory. The interpreter lock is released meanwhile, unless that takes longer than the work.
        Raises `DataError`.
        """

@final
class RecvFuture:
    """A posted receive; `tl.wait` turns it into a value, once."""

    def __repr__(self, /) -> str: ...
    @property
    def dtype(self, /) -> str:
        """Element type, e.g. `"f16"`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, as a tuple of ints."""

@final
class Ref:
    """A reference to `size` slots of a buffer of a rank, from `index` on.

    Raises `ProgramError`, which is also the exception that upstream raises: AHBM-A202 to A206.
    """

    def __eq__(self, other: object, /) -> bool: ...
    def __getattr__(self, name: str, /) -> Any:
        """Only asked for what there is not."""

    def __hash__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def buffer(self, /) -> Any:
        """The buffer: `Buffer.input`, `Buffer.output`, or the name of a slice of scratch."""

    def copy(
        self, dst: int, buffer: object = None, index: int = -1, sendtb: int = -1, recvtb: int = -1, ch: int = -1
    ) -> Ref:
        """Copies the chunks to rank `dst`, and returns a reference to the copy.

        Without `buffer` and `index` they go to the same place; without `index`, to the end of a slice of scratch, which
        is made on first use. A copy of a chunk to its own place does nothing. `sendtb`, `recvtb` and `ch` choose thread
        blocks and the channel.
        """

    def get_dst_index(self, /, index: int = 0) -> int:
        """Where the chunk in a slot of the reference has to end."""

    def get_dst_rank(self, /, index: int = 0) -> int:
        """The rank at which the chunk in a slot of the reference has to end; -1: all."""

    def get_origin_index(self, /, index: int = 0) -> int:
        """Where the chunk in a slot of the reference was in the input."""

    def get_origin_rank(self, /, index: int = 0) -> int:
        """The rank whose input the chunk in a slot of the reference was."""

    def group(self, other: Ref) -> Ref:
        """A reference to everything from the first slot of the two to the last. Raises AHBM-A206 for two ranks or buffers."""

    @property
    def index(self, /) -> int:
        """The first slot."""

    def print_chunk_info(self, /, index: int = 0) -> None:
        """Prints the chunk in a slot of the reference."""

    @property
    def prog(self, /) -> MscclRecorder:
        """The program."""

    @property
    def rank(self, /) -> int:
        """The rank."""

    def reduce(self, other_chunkref: Ref, sendtb: int = -1, recvtb: int = -1, ch: int = -1) -> Ref:
        """Reduces the chunks of `other` into these, and returns these."""

    @property
    def size(self, /) -> int:
        """The number of slots."""

    def split(self, num: int) -> list[Ref]:
        """`num` references to equal parts. Raises AHBM-A206 where the slots cannot be divided."""

@final
class Replayed:
    """A job that was replayed. Times are picoseconds from its start."""

    @property
    def by_roofline(self, /) -> bool:
        """Whether it has computations that state no duration, which take what the machine computes at."""

    @property
    def calls_ps(self, /) -> list[tuple[int, int, int]]:
        """Per call, when its first rank arrived, when its last did, and when its last part ended."""

    @property
    def computed_ps(self, /) -> list[int]:
        """Per rank, the time in which its device computed; computations side by side count once."""

    @property
    def ends_ps(self, /) -> list[int]:
        """Per rank, the end of its last node."""

    @property
    def every_node(self, /) -> tuple[Incomplete, Incomplete, Incomplete, Incomplete, Incomplete]:
        """The same of every rank, which has the times of the one that it is a copy of; as `nodes` for a job of more nodes
        than are ever kept for every rank.
        """

    @property
    def exposed_ps(self, /) -> list[tuple[int | None, int, int]]:
        """Per call that a rank exposes, None for other nodes: the exposed time of all ranks, and the part of it in which
        another rank had not arrived yet. In the order of calls, the other nodes first.
        """

    @property
    def exposures(self, /) -> list[tuple[int, list[tuple[int | None, int, int]]]]:
        """Per rank that is a copy of none, what its exposed time is made of: the call, None for other nodes, the exposed time, and the part of it
        in which another rank had not arrived yet. The exposed times sum to the rank's end less its computing and less
        what waited for its host.
        """

    @property
    def hosted_ps(self, /) -> list[int]:
        """Per rank, the time in which its device did not compute, and what it does next waited for its host."""

    @property
    def nodes(
        self,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        """Every node of ranks that are copies of none, in the order of ranks and ids, as columns: rank, id, start and end, and
        0 for a computation, 1 for a call, 2 for a send, 3 for a receive, 4 for memory, 5 for others.
        """

    @property
    def path(self, /) -> list[tuple[int, int, int, str, int | None, str, str]]:
        """The critical path: rank, start, end, "compute", "host", "memory" or "call", the call, name and origin of the node."""

    def program(self, /) -> Program:
        """The whole job as one program, whose hosts issue their nodes in the order that was found."""

    @property
    def simulated(self, /) -> int:
        """Ranks that were simulated; the others do what one of these does."""

    def tracks(
        self, /
    ) -> tuple[
        list[tuple[str, int | None]],
        list[str],
        list[str],
        tuple[Incomplete, Incomplete, Incomplete, Incomplete, Incomplete, Incomplete, Incomplete, Incomplete],
    ]:
        """What every rank computes and calls, as columns: as `Timeline.tracks`, without the machine below. Parts of a call
        are joined by the number of their message. Raises `BudgetError` (AHBM-B122) for a job too long to show.
        """

    @property
    def traffic(self, /) -> tuple[int, int, int]:
        """Messages that were sent, their bytes, and events of the simulation."""

    @property
    def untimed(self, /) -> int:
        """Computations that state neither a duration nor operations, and take no time."""

    @property
    def waiting_ps(self, /) -> list[int]:
        """Per rank, the part of its exposed time in which another rank had not arrived yet."""

    def write_timeline(self, /, path: str | PathLike[str], *, ranks_only: bool = False) -> int:
        """Writes the job as a timeline to look at: for Perfetto (`.pftrace`), or as Chrome's trace-event JSON (`.json`).
        It shows what every rank computes and calls, with arrows between the parts of a call and, unless `ranks_only`, the
        machine below.

        Returns the number of slices. The interpreter lock is released meanwhile. Raises `ConfigError` (AHBM-C149) for
        other names, `BudgetError` (AHBM-B121, B122) for a job too long to show, `FormatError` (AHBM-F102) for a file
        that cannot be written.
        """

    def write_trace(self, /, prefix: str | PathLike[str]) -> tuple[list[Path], int | None]:
        """Writes the job with the operations of its calls in their places, and the times that they took, as a Chakra trace:
        `PREFIX.<rank>.et`.

        Returns the files, and the first rank whose calls waited for each other's messages, which the trace keeps in no
        order; None where there is none. The interpreter lock is released meanwhile. Raises `UnsupportedError` (AHBM-U294)
        for a call with a barrier between ranks, `FormatError` (AHBM-F102, F139), after which nothing was written.
        """

@final
class Roofline:
    """What a SIP computes a training job at."""

    @property
    def byte_share(self, /) -> float:
        """Peak in types of one byte as a share of it."""

    @property
    def bytes_per_ns(self, /) -> float:
        """Bytes per nanosecond of the memory."""

    @property
    def f32_share(self, /) -> float:
        """Peak in f32 as a share of it."""

    @property
    def f64_share(self, /) -> float:
        """Peak in f64 as a share of that in types of two bytes."""

    @property
    def host_bytes_per_ns(self, /) -> float:
        """Bytes per nanosecond of the link to the host, each way."""

    @property
    def launch_ps(self, /) -> int:
        """Picoseconds to start a kernel."""

    @property
    def operations_per_ns(self, /) -> float:
        """Arithmetic operations per nanosecond in types of two bytes."""

    @property
    def tf32_share(self, /) -> float:
        """Peak in TF32 as a share of it."""

@final
class RuleTable:
    """Ordered rules, of which the first that fits a call is taken. Immutable."""

    def __len__(self, /) -> int: ...
    def __new__(cls, /, rows: Sequence[tuple[str, int, int, bool, int, int, int, int, int, int]]) -> RuleTable:
        """A row per rule: collective, least and most bytes of one rank's array, whether they are compared with the array's
        divided by the ranks and rounded down, least and most ranks, nodes, and ranks per node. All bounds are included.
        """

    def first(self, /, collective: str, nbytes: int, ranks: int, nodes: int = ..., after: int = ...) -> int | None:
        """Position of the first row from `after` on that fits a call of `nbytes` bytes of one rank's array; None where
        none does.
        """

@final
class Schedule:
    """A schedule for a machine, and the bound it is measured against. Immutable."""

    def __len__(self, /) -> int:
        """Number of transfers."""

    def __new__(
        cls,
        /,
        machine: Machine,
        collective: str,
        *,
        share_bytes: int,
        chunks: int = ...,
        element_bytes: int = ...,
        root: int = ...,
        method: str = ...,
        seed: int = ...,
        members: Sequence[int] = ...,
    ) -> Schedule:
        """Bounds and synthesizes a collective; the interpreter lock is released meanwhile.

        `share_bytes` are those of the whole buffer for all_reduce, broadcast and reduce, of one NPU's part of it for
        the others; each share is cut into `chunks` of whole elements of `element_bytes`. `method` is `"auto"` or
        one of `methods()`. `members` are the NPUs that take part, by rank; without any, all do. Raises
        `UnsupportedError`, `BudgetError`, and ConfigError for an unknown collective.
        """

    def __repr__(self, /) -> str: ...
    @property
    def bound_is_tightest(self, /) -> bool:
        """True when no cut is tighter and no way longer: see `Limit.tightest`."""

    @property
    def bound_ms(self, /) -> float:
        """Host time spent on the bound."""

    @property
    def bound_ps(self, /) -> int:
        """Time no schedule can beat."""

    @property
    def chunk_bytes(self, /) -> list[int]:
        """Sizes in bytes of the chunks of one share."""

    @property
    def cut(self, /) -> tuple[list[list[int]], float, int, int]:
        """The tight cut: its parts (one: a set of NPUs against the others), the bandwidth across it in GB/s, the number
        of links across it, and how many shares have to cross it.
        """

    @property
    def ends(self, /) -> int:
        """PEs an NPU needs so that each thread block of the plan, one for every end of a link, has a DMA engine of its own:
        as many as these, or more; at a switch one and no more, so that its DMA engine keeps what leaves by the port in
        order.
        """

    def even(self, /, path: str | PathLike[str] | None = ...) -> Schedule:
        """The schedule for the greatest size, up to its own, whose chunks are all equal: what a plan for many sizes is
        made of. Chunks of sizes of their own stay so. A `path` says by its suffix which format the plan is meant for;
        chunks of an execution plan are multiples of 16 B. Raises `UnsupportedError` (AHBM-U291 for a path of no format,
        AHBM-U293 for chunks of less).
        """

    @property
    def method(self, /) -> str:
        """The method that found it."""

    @staticmethod
    def method_table() -> list[tuple[str, str, bool]]:
        """The same methods as rows: (name, the idea in one sentence, True for closed forms)."""

    @staticmethod
    def methods() -> list[str]:
        """Names of the methods besides `"auto"`."""

    def places(self, /) -> list[int]:
        """The NPUs by rank of the plan: those that take part, then those that only relay."""

    def plan(self, /) -> Plan:
        """The schedule as a plan, in place except for all_to_all. Raises `UnsupportedError` (AHBM-U293) for sizes that a
        plan has no numbers for.
        """

    @property
    def rounds(self, /) -> int:
        """Rounds the schedule takes when every chunk takes one."""

    @property
    def rounds_bound(self, /) -> int | None:
        """Rounds no schedule of as many chunks can beat; None where links differ."""

    @property
    def synthesis_ms(self, /) -> float:
        """Host time spent on the schedule."""

    @property
    def time_ps(self, /) -> int:
        """Completion time."""

    def transfers(self, /) -> list[tuple[int, int, int, bool, int]]:
        """All transfers in order of sending: (from, to, chunk, True when the receiver adds, arrival in ps)."""

@final
class Timeline:
    """When everything happened. Times are integer picoseconds from the common launch time."""

    def __repr__(self, /) -> str: ...
    def agent_time(self) -> NDArray[np.uint64]:
        """Per agent the time from the launch to the end of the run by category, as an array of shape (agents * categories,), u64 ps.

        Raises `DataError` (AHBM-V123) without detail.
        """

    def busy_links(self, /, at: int) -> list[tuple[int, str, int, int, int]]:
        """The links that are busy at `at` ps: number, name, until when in ps, and with whose operation (agent, operation).

        Raises `DataError` (AHBM-V123) without detail.
        """

    @property
    def bytes(self, /) -> int:
        """Payload bytes delivered by messages."""

    def chunks_ps(self) -> NDArray[np.uint64]:
        """What each chunk that a rank sends another has of the critical path, in ps: u64 of shape (chunks,), in the order of
        their senders' ranks, agents and operations. A chunk has the time of the operations that move and that take it;
        what computes has none, so the sum is the latency or less. A receive from anybody counts for the chunk that it
        would take without time.

        Raises `DataError` (AHBM-V123) without detail, `DeadlockError` (AHBM-D201) for a program that gets stuck.
        """

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
    ]:
        """The critical path, from launch to the last agent's end: abutting stretches as seven arrays of shape (n,).

        agent, operation (u32), index into `categories()` (u8), link (u32, 2**32 - 1: none), line of the operation
        (u32, equal numbers are equal lines), start and end (u64, ps). Raises `DataError` (AHBM-V123) without detail.
        """

    @property
    def deadlock(self) -> DeadlockError | None:
        """The DeadlockError that the run ended in; None when it came to its end (see `Program.simulate`)."""

    @property
    def ends_ps(self, /) -> list[int]:
        """End time of every agent, in the order they were added."""

    @property
    def events(self, /) -> int:
        """Engine events processed."""

    @property
    def hash(self, /) -> int:
        """Digest of every operation's times; equal inputs give equal digests on every machine."""

    def intervals(
        self, agent: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64]]:
        """An agent's time from the launch to the end of the run: abutting intervals as four arrays of shape (n,).

        Operation (u32; after the agent's end the last one), index into `categories()` (u8), start and end (u64, ps).
        Raises `ConfigError` (AHBM-C129), `DataError` (AHBM-V123) without detail.
        """

    @property
    def latency_ps(self, /) -> int:
        """Latency of the launch: the last agent's end; of a deadlock, the last progress."""

    def link_load(self, /, frames: int) -> list[tuple[int, str, list[int]]]:
        """How busy links are over time: number, name, and busy ps in each of `frames` equal parts of the run.

        Raises `ConfigError` (AHBM-C129), `DataError` (AHBM-V123) without detail.
        """

    def link_use(self, /) -> list[tuple[int, str, int, int, int, int]]:
        """Every link that was used, the one most waited for first: number, name, busy ps, messages that crossed it (flits,
        under the flit model), those of them that waited for another, and the sum of their waits in ps.

        Raises `DataError` (AHBM-V123) without detail.
        """

    @property
    def messages(self, /) -> int:
        """Messages delivered."""

    def spans(self, agent: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Start (dispatch included) and end of every operation of an agent in issue order: two arrays of u64, ps.

        Raises `ConfigError` (AHBM-C129), `DataError` (AHBM-V124) for a timeline that did not record them.
        """

    def state(
        self, /, at: int
    ) -> tuple[
        list[tuple[int, int, int | None, str, int, list[tuple[int, int]]] | None],
        list[tuple[int, int, int, int, int, int, list[tuple[int, int, int, int | None]]]],
        list[int],
    ]:
        """The state of the run at `at` ps; effects at that very time have happened.

        Per agent, None without operations, or: its operation (the last one at the end), its start and end in ps (None for
        an operation that a deadlock keeps from its end), what it does (works, ended, or what it waits for: message, slot, counter, barrier), the value of the counter or how many
        have arrived at the barrier, and the operations that it waits for (agent, operation). Per queue: sender, receiver,
        slots, free slots, messages sent and received until then, and those in it (operation that sent it, since when in
        ps, bytes, the posted receive that claims it). The value of every counter. Raises `DataError` (AHBM-D191) for a
        timeline that was not recorded.
        """

    def tracks(
        self, /
    ) -> tuple[
        list[tuple[str, int | None]],
        list[str],
        list[str],
        tuple[Incomplete, Incomplete, Incomplete, Incomplete, Incomplete, Incomplete, Incomplete, Incomplete],
    ]:
        """What a timeline file of the run shows, as columns.

        Tracks by name, each with the position of the track that it stands in; the names and the origins of slices; and
        per slice: track, name, origin (u32, 2**32 - 1: none), depth (u8; 1 stands inside the last one of its track with
        0), message (u32, 2**32 - 1: none), its part in that (u8; 1 sends it, 2 reads it, 3 is one of several that are
        joined, 4 is a resource that it occupies), start and end (u64, ps). Slices of one track are in order of time.
        Raises `DataError` (AHBM-V123) without detail, `BudgetError` (AHBM-B122) for a run too long to show.
        """

    def write(self, /, path: str | PathLike[str]) -> int:
        """Writes the run as a timeline to look at: for Perfetto (`.pftrace`), or as Chrome's trace-event JSON (`.json`).

        Returns the number of slices. The interpreter lock is released meanwhile. Raises `ConfigError` (AHBM-C149) for
        other names, `DataError` (AHBM-V123) without detail, `BudgetError` (AHBM-B122) for a run too long to show,
        `FormatError` (AHBM-F102) for a file that cannot be written.
        """

@final
class Tl:
    """The recording context of one kernel call.

    Pointers are ints (bytes), directions texts or what `peer` returns, shapes an int or a tuple of ints, dtypes one of f16 bf16 f32 f64 f8e4m3 f8e5m2 i8
    i16 i32 i64 u8 u16 u32 u64. A call that cannot be recorded raises `ahbm.errors.KernelError` with the kernel's file and line.
    """

    def __repr__(self, /) -> str: ...
    def arange(self, /, start: int, end: int, dtype: str = "f16") -> Handle:
        """`start, start + 1, …, end - 1`."""

    def cast(self, a: Handle, dtype: str) -> Handle:
        """Conversion to another dtype: floats are rounded to nearest even, and become integers by rounding towards zero."""

    def cdiv(self, a: int, b: int) -> int:
        """`a / b` rounded up; plain ints."""

    def clamp(self, a: Handle, lo: _Number, hi: _Number) -> Handle:
        """`min(max(a, lo), hi)` with numbers as bounds."""

    def combine(self, a: Handle | _Number, b: Handle | _Number, op: str) -> Handle:
        """The reduction step of a collective: `op` is sum, prod, min, max, avg (which adds; divide at the
        end), or for integers band, bor, bxor.
        """

    def composite(self, op: str, a: Handle | MemoryRef, b: Handle | MemoryRef, out_ptr: int) -> None:
        """`op="gemm"`: the matrix product of `a` and `b` (handles or memory references), stored at `out_ptr`."""

    def dot(self, a: Handle | MemoryRef, b: Handle | MemoryRef) -> Handle:
        """Matrix product of `(m, k)` and `(k, n)`."""

    def exp(self, a: Handle) -> Handle:
        """Element-wise exponential; floats only."""

    def fence(self, /) -> None:
        """Waits until everything that this PE has multicast has arrived."""

    def fma(self, a: Handle | _Number, b: Handle | _Number, c: Handle | _Number) -> Handle:
        """`a * b + c`, rounded once; numbers stand for values of equal elements."""

    def full(self, shape: _Shape, value: _Number, dtype: str = "f16") -> Handle:
        """A value of equal elements."""

    def itemsize(self, /, dtype: str) -> int:
        """Bytes of one element of `dtype`; a constant, so it is no call that costs a dispatch."""

    def load(self, ptr: int | MemoryRef, shape: _Shape | None = None, dtype: str | None = None) -> Handle:
        """Reads `shape` elements at byte address `ptr` into a value: of `dtype`, f16 by default. What `tl.ref` names has a
        shape and a dtype, with which those that are given must agree.
        """

    def load_reduce(self, ptr: int, shape: _Shape, sips: Iterable[int], dtype: str = "f16", op: str = "sum") -> Handle:
        """Reads `shape` elements at byte address `ptr` of every SIP in `sips`, reduced by the switch between them: one value.

        The SIPs are ranks of the launch, each at most once; the result is that of reducing them in this order. `op` is as
        in `combine`. The machine needs a switch that reduces.
        """

    def log(self, a: Handle) -> Handle:
        """Element-wise natural logarithm; floats only."""

    def max(self, a: Handle, axis: int | None = None) -> Handle:
        """Maximum along `axis`, or of all elements."""

    def maximum(self, a: Handle | _Number, b: Handle | _Number) -> Handle:
        """Element-wise maximum; one operand may be a number."""

    def min(self, a: Handle, axis: int | None = None) -> Handle:
        """Minimum along `axis`, or of all elements."""

    def minimum(self, a: Handle | _Number, b: Handle | _Number) -> Handle:
        """Element-wise minimum; one operand may be a number."""

    def multicast(self, ptr: int, value: Handle | MemoryRef, sips: Iterable[int]) -> None:
        """Writes a value to byte address `ptr` of every SIP in `sips`, copied by the switch between them.

        It is posted: `fence` waits until it has arrived everywhere. The SIPs are ranks of the launch, each at most once.
        The machine needs a switch that reduces.
        """

    def num_programs(self, /, axis: int = 0) -> int:
        """How many indices `program_id(axis)` runs over."""

    def peer(self, *, sip: int | None = None, cube: int | None = None, pe: int | None = None) -> Peer:
        """The address of a PE: a direction for `send`, `recv` and `recv_async`. A part left out means "same as mine".

        It names the same queue as the text `"sip2.cube5.pe0"`, and a rank behind it keeps its formula, which a text
        loses. A name, so it is no call that costs a dispatch.
        """

    def program_id(self, axis: int = 0) -> int:
        """This PE's index: axis 0 inside its cube, axis 1 the cube's index inside its SIP."""

    def recv(
        self,
        dir: str | Peer | None = None,
        shape: _Shape | None = None,
        dtype: str = "f16",
        mode: str = "return_slot",
        dst: int | None = None,
    ) -> Handle:
        """Receives the next message from `dir`, or (None) from the next direction, in turn, that has one.

        `mode="copy_to_dst"` also stores it at byte address `dst`.
        """

    def recv_async(self, dir: str | Peer, shape: _Shape, dtype: str = "f16") -> RecvFuture:
        """Posts a receive that completes in the background; `tl.wait` gives its value."""

    def ref(self, ptr: int, shape: _Shape, dtype: str = "f16") -> MemoryRef:
        """Names `shape` elements at byte address `ptr` without reading them: a source for `send` and `load`."""

    def send(self, dir: str | Peer, src: Handle | MemoryRef) -> None:
        """Posts `src` (a value, or a memory reference) to the PE behind `dir`; blocks only while no slot is free."""

    def softmax(self, a: Handle, axis: int = -1) -> Handle:
        """Softmax along `axis`; floats only."""

    def sqrt(self, a: Handle) -> Handle:
        """Element-wise square root; floats only."""

    def store(self, ptr: int, value: Handle | MemoryRef) -> None:
        """Writes a value to byte address `ptr`."""

    def sum(self, a: Handle, axis: int | None = None) -> Handle:
        """Sum along `axis`, or of all elements."""

    def trans(self, a: Handle) -> Handle:
        """Transpose of a matrix."""

    def wait(self, future: RecvFuture | Handle) -> Handle:
        """Waits for a posted receive and returns its value. A value is complete and returned as it is."""

    def where(self, cond: Handle, a: Handle | _Number, b: Handle | _Number) -> Handle:
        """`a` where `cond` is not 0, else `b`; one of them may be a number."""

    def zeros(self, shape: _Shape, dtype: str = "f16") -> Handle:
        """A value of zeros."""

@final
class Watch:
    """Waits for the bytes of signals and ends the process where Ctrl-C goes unheard."""

    def __new__(cls, socket: int, grace_s: float, unheard: Callable[[], bool]) -> Watch:
        """Reads the numbers of signals from a socket (`signal.set_wakeup_fd` writes them to its other end) in a thread of its
        own, which owns it: `socket` is what `detach` returns. `grace_s` seconds after Ctrl-C it calls `unheard`; when that returns True, or cannot be
        called because native code keeps the interpreter's lock, the process ends at once with exit code 130.
        """

    def stop(self, /) -> None:
        """Nothing ends the process any more."""

@final
class Workload:
    """A training job as a graph of what every rank computes, calls, sends and receives. Immutable."""

    @property
    def calls(self, /) -> list[JobCall]:
        """The collectives, group by group, and behind them the messages; those in which ranks have a part that are copies
        of none.
        """

    @property
    def chunks(self, /) -> list[tuple[int, int, int, bool]]:
        """The chunks of calls that nodes wait for or deliver: the call, the rank's position in it, the chunk, and whether
        it is waited for.
        """

    @property
    def copies(self, /) -> int:
        """Ranks of which only one is kept in `calls` and replayed: so many do the same, 1 where every rank is kept.

        Of a job of more than four million nodes, ranks that a renumbering takes to each other, as data-parallel replicas,
        are copies: the nodes, calls and messages of the lowest stand for theirs.
        """

    def features(self, /, machine: Machine, *, factors: Sequence[tuple[str, float]] = ...) -> JobFeatures:
        """What its calls look like before they run. Computations without a duration take what `machine.roofline` says;
        `factors` as in `replay`. The interpreter lock is released meanwhile. Raises KeyboardInterrupt.
        """

    @property
    def graphs(self, /) -> int:
        """Number of different graphs: ranks that do the same share one."""

    @staticmethod
    def in_flight(schedule: str, stage: int, stages: int, chunks: int, micro_batches: int) -> int:
        """Chunks of layers of stage `stage` of `stages` whose activations are kept at most, of a schedule of
        `ahbm.job.transformer.SCHEDULES`, where a rank has `chunks` of them.

        Raises `ConfigError` (AHBM-C157) for an unknown schedule, and for numbers of which there is no such order.
        """

    @property
    def leads(self, /) -> list[int]:
        """Per rank the lowest of which it is a copy."""

    @property
    def left_out(self, /) -> tuple[int, int]:
        """Dependencies that lenient reading left out: on nodes that do not exist, and to open circles."""

    @property
    def name(self, /) -> str:
        """Name for people."""

    @property
    def nodes(self, /) -> int:
        """Number of nodes of all ranks."""

    @property
    def notes(self) -> list[dict[str, Any]]:
        """What the source leaves open, and how it was taken."""

    @staticmethod
    def of_profiles(
        name: str,
        files: Sequence[tuple[str, bytes | bytearray]],
        *,
        groups: Mapping[str, Sequence[int]] = ...,
        limits: Sequence[tuple[str, int]] = ...,
        step: int | None = None,
        host_gaps: bool = False,
        symmetric: bool = False,
        scaled: bool = False,
    ) -> Workload:
        """Reads a job from profilers' traces (kineto) in memory: per rank the name of its file, for findings, and its bytes.

        Options and errors as `read`. The interpreter lock is released meanwhile.
        """

    def on_network(self, /, npus: Sequence[int]) -> Workload:
        """The job on a network of dimensions with so many NPUs each, the first varying fastest: a call of all ranks that
        names dimensions (`involved_dim`) is one call for every group of ranks that differ in these alone.

        The interpreter lock is released meanwhile. Raises as `read` for what these calls then are.
        """

    @property
    def ranks(self, /) -> int:
        """Number of ranks."""

    @staticmethod
    def read(
        path: str | PathLike[str],
        *,
        groups: Mapping[str, Sequence[int]] = ...,
        lenient: bool = False,
        limits: Sequence[tuple[str, int]] = ...,
        step: int | None = None,
        host_gaps: bool = False,
        symmetric: bool = False,
        scaled: bool = False,
    ) -> Workload:
        """Reads the job that a path names: the prefix of a Chakra trace, one of its files, or a folder that holds one; or
        the trace of a rank that PyTorch wrote (.json, .json.gz), whose siblings are found by their names, or a folder of
        such traces.

        `groups` has the ranks of process groups that nodes only name; `lenient` leaves out dependencies on nodes that do
        not exist and those that close a circle; `limits` are pairs of a name of `plan_limits()` and a number. Of traces
        of PyTorch, `step` takes the profiler's step of this number instead of all, `host_gaps` keeps the time that the
        host takes between launches, `symmetric` lets all ranks do what the one rank with a trace does, and `scaled` keeps
        communications of groups of one rank for `replicated`. The interpreter lock is released meanwhile. Raises
        `FormatError` (AHBM-F131 to F139, F149, F183 to F187), `UnsupportedError` (AHBM-U234 for a process group of unknown
        ranks), `ConfigError` (AHBM-C146 for options that do not go with the trace), `BudgetError`.
        """

    @property
    def recorded(self, /) -> bool:
        """Whether it was recorded by `ahbm.torch`."""

    def replay(
        self,
        /,
        machine: Machine,
        programs: Sequence[Program | None],
        *,
        made_for: Sequence[int] = ...,
        regions: Sequence[Sequence[tuple[int, int, int]]] = ...,
        lanes: str = "device",
        factors: Sequence[tuple[str, float]] = ...,
        fold: bool = True,
        max_events: int = ...,
    ) -> Replayed | None:
        """Replays the job. `programs` has one entry for each of `calls`, None where nothing runs, and `regions` one for
        each of `chunks`: buffers of the program with first byte and end. Rank r is SIP r. `made_for` has for each of
        `calls` the one for whose ranks its program was made, whose places its own ranks take in ascending order; without
        any, every program was made for its call. With `fold`, of ranks that do the same one is simulated. None where ranks
        that are copies do not do the same on this machine: `whole` has all of them.

        `lanes` says which nodes of a rank may run side by side: "device" (one computation of the accelerator and one of
        the host at a time), "streams" (besides, nodes of a recorded stream one after the other), "astra" (besides, one
        communication at a time) or "unlimited". Computations without a duration take what `machine.roofline` says;
        `factors` are pairs of a text and a factor for computations with the text in their name. The interpreter lock is
        released meanwhile. Raises `DeadlockError` (AHBM-D102) for ranks that wait for each other, `ConfigError`
        (AHBM-C205) for unknown lanes, `BudgetError`, and KeyboardInterrupt.
        """

    def replicated(self, /, replicas: int) -> Workload:
        """The job with another number of data-parallel replicas: added ones do what recorded ones do, in turn.

        An all_gather and a reduce_scatter among replicas move the same whole in other shares; computing stays as it
        was recorded. The interpreter lock is released meanwhile. Raises `UnsupportedError` (AHBM-U236) for a job that
        has no replicas, or cannot have so many.
        """

    @staticmethod
    def together(name: str, jobs: Sequence[tuple[Workload, Sequence[int]]], size: int) -> Workload:
        """One job of `size` ranks: of each pair, rank `places[r]` does what rank r of the job does; every other rank does
        nothing. Groups keep their names and the order of their ranks. The interpreter lock is released meanwhile.

        Raises `ConfigError` (AHBM-C120) for a job with another number of places than ranks, and for a place that does
        not exist or has two ranks.
        """

    @staticmethod
    def transformer(
        name: str, sizes: Mapping[str, int], dtype: tuple[str, int], words: Mapping[str, str], *, thin: bool = False
    ) -> Workload:
        """One training step of a transformer; `ahbm.job.transformer.Transformer` says what the numbers mean.

        `sizes` has each of them by name, `dtype` is a name and its bytes, `words` has the others. thin: one rank of those
        that are copies of each other, however few there are. The interpreter lock is released meanwhile. Raises `ConfigError` (AHBM-C157) for a name that is missing or unknown, and for numbers that are
        out of range, do not divide each other as they must, or make too large a job.
        """

    def whole(self, /) -> Workload:
        """The job with every rank's calls and messages. The interpreter lock is released meanwhile. Raises
        `FormatError` (AHBM-F136) for more nodes than there are numbers.
        """

    def write(self, /, prefix: str | PathLike[str]) -> list[Path]:
        """Writes the job as a Chakra trace: `PREFIX.<rank>.et`, and `PREFIX.groups.json` where calls name groups.

        Reading the files gives the same job. Returns the files. The interpreter lock is released meanwhile. Raises
        `FormatError` (AHBM-F102, F139), after which nothing was written.
        """

def categories() -> list[str]:
    """Names of what time is spent on, in the order of the numbers in `Timeline.critical_path`."""

def check_timeline_name(path: str | PathLike[str]) -> None:
    """Raises `ConfigError` (AHBM-C149) unless a timeline can be written to a file of this name."""

def codes() -> list[tuple[str, str, str, str]]:
    """Every error code, its meaning, an example of what leads to it, and what to do, by code."""

def collectives() -> list[tuple[str, bool, bool, bool, bool]]:
    """Facts about every collective: (name, chunked, reduces, rooted, paired), as `ahbm.collectives` describes them."""

def convert_plan(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    nbytes: int | None = None,
    link_order: bool = False,
    slots: int = 0,
    quirks: bool = False,
    limits: Sequence[tuple[str, int]] = ...,
) -> list[Path]:
    """Reads `source` as `read_plan` does and writes it as what the name of `target` says: `.xml`, `.json` or `.et`.

    The files of a trace are `PREFIX.<rank>.et`. `nbytes` is the size by which a trace states `comm_size` (of the
    larger of operand and result, default about 1 MiB); `link_order` orders the sends of every link of a trace; `slots`
    is how many messages the queues of an execution plan hold.
    Returns the paths that were written; after an error none was. The interpreter lock is released meanwhile. Raises
    as `read_plan`; `UnsupportedError` (AHBM-U292) for what the format of `target` cannot express.
    """

def expected(
    collective: str, ranks: int, count: int, root: int = 0, src: int = 0, dst: int = 1, *, rank: int | None = None
) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
    """The content that the ranks' arrays must have after a collective: runs (rank, start, stop, [(rank, start), …]).

    Element start + i of the rank is the reduction of element start + i of the arrays that are listed, or that element
    where one is listed. Elements in no run may end with anything. Arguments and errors are those of `held`.
    """

def held(
    collective: str, ranks: int, count: int, root: int = 0, src: int = 0, dst: int = 1, *, rank: int | None = None
) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
    """Which elements the ranks contribute to a collective: runs (rank, start, stop, [(rank, start)]).

    Every rank has one array in the in-place layout: `ranks` chunks of `count` elements where the collective has chunks,
    else one. `root` is that of rooted collectives, `src` and `dst` are those of paired ones. `rank` asks for the runs
    of one rank only. Raises ConfigError (AHBM-C205 for another name, AHBM-C120 for ranks that do not exist).
    """

def is_pytorch_trace(path: str | PathLike[str]) -> bool:
    """Whether a path names traces that PyTorch wrote: the file of a rank, or a folder."""

def kernels_of(workload: Workload, rank: int) -> list[tuple[str, int, tuple[str, list[int], int, int, str, bool]]]:
    """The computations of the device of a rank that say what they do or how long they take, in the order of the trace: name,
    stated duration in ps (0: none), and what `Machine.kernels_ps` takes of each.

    Raises `ConfigError` (AHBM-C129) for a rank that is not there.
    """

def msccl_chunk(rank: int, buffer: object, index: int, size: int = 1) -> Ref:
    """A reference to `size` slots of a buffer of a rank, in the program of the context.

    A slot that was never written gives an object that is false and fails when it is used, as None does upstream. Raises
    `ProgramError`: AHBM-A201 outside a program, AHBM-A202 for other arguments, AHBM-A203 outside a buffer.
    """

def mscclpp_statement() -> str:
    """The author's statement, `file:line` with the values of the loops around it."""

def plan_files(path: str | PathLike[str]) -> list[Path]:
    """The files that make up the plan at `path`: those of all ranks for a trace, else itself.

    Raises `FormatError` (AHBM-F139) for a trace without files, or with a rank missing.
    """

def plan_formats() -> list[tuple[str, str]]:
    """Every format of plans: suffix of its files with the dot, name for people."""

def plan_limits() -> list[tuple[str, int]]:
    """Every limit of `read_plan` with its default."""

def pytorch_traces(path: str | PathLike[str]) -> list[Path]:
    """The files of the job that a path names, where PyTorch wrote its traces: that of a rank and those of the others beside
    it, or those in a folder.

    Raises `FormatError` (AHBM-F139, F183, F185), `BudgetError` (AHBM-B206).
    """

def read_plan(
    path: str | PathLike[str], *, quirks: bool = False, lenient: bool = False, limits: Sequence[tuple[str, int]] = ...
) -> Plan:
    """Reads a plan: MSCCL-IR (.xml), an MSCCL++ execution plan (.json) or a Chakra trace (PREFIX.<rank>.et).

    `quirks` follows the defects of the runtime that a format belongs to instead of what was meant; `lenient` leaves out
    dependencies of a trace on nodes that do not exist; `limits` are pairs of a name of `plan_limits()` and a number.
    The interpreter lock is released meanwhile. Raises `FormatError` for a malformed file, `BudgetError`,
    `UnsupportedError`.
    """

def read_profile(path: str | PathLike[str], *, limits: Sequence[tuple[str, int]] = ...) -> Profile:
    """Reads what one accelerator did from a trace of PyTorch's profiler, plain or gzip.

    Raises `FormatError`: AHBM-F183 for no such trace, F184 for kernels of several devices, F132, F139; `BudgetError`
    (AHBM-B201 to B208).
    """

def sources() -> str:
    """Digest of the Rust sources and of the versions of what they use, 16 hex digits: builds with equal ones give equal
    times and bytes.
    """

def trace_sort(path: str | PathLike[str], *, limits: Sequence[tuple[str, int]] = ...) -> str:
    """Whether a path names the trace of a job: "job", "algorithm", "either" where it only sends, receives and computes, or
    "none" where it is no trace.

    Raises as `read_plan`.
    """

def unpacked(content: bytes, most: int, *, cut: bool = False) -> bytes:
    """The first `most` bytes of what a file holds: packed as gzip (RFC 1952), as Zstandard (RFC 8878, windows of at most
    100 MiB), or not packed. `cut`: `content` is the beginning of a file, and as much as it gives is returned.

    Raises OSError where the stream is broken before that.
    """

def write_job_timeline(
    path: str | PathLike[str],
    name: str,
    stretches: Sequence[tuple[Sequence[str], str, str, int, int, tuple[int, bool] | None]],
) -> None:
    """Writes a job's operations as a timeline to look at: for Perfetto (`.pftrace`), or as Chrome's trace-event JSON
    (`.json`).

    A stretch is the row it stands in (its name in its groups' names), a name, an origin, start and end in ps, and the
    number of its message and whether that is sent, or None. Stretches of a row that overlap get rows of their own.
    Raises `ConfigError` (AHBM-C149) for other names, `BudgetError` (AHBM-B122) for a job too long to show,
    `FormatError` (AHBM-F102) for a file that cannot be written.
    """

def write_recording(
    prefix: str | PathLike[str],
    rank: int,
    ranks: int,
    events: Sequence[tuple[str, str, Sequence[int], int, int, Sequence[tuple[str, int | str | Sequence[int]]]]],
    *,
    alike: Sequence[Sequence[tuple[str, Sequence[int]]]] | None = None,
) -> Path:
    """Writes what one of `ranks` ranks did as a Chakra trace, `PREFIX.<rank>.et`, and returns the path. With `alike` the rank
    stands for all, which do the same: the file is `PREFIX.0.et`, and each entry has groups, as names and ranks, that
    ranks have in each other's place.

    An event is a kind of the schema (`"COMP_NODE"`, ...), a name, the numbers of the earlier events that it waits for,
    its start and duration in ps, and attributes: pairs of a name and a number, a text or a list of numbers. Raises
    `FormatError` for a file that cannot be written (AHBM-F102), beside a larger trace (AHBM-F139), or events that make
    no trace (AHBM-F134 to F136).
    """
