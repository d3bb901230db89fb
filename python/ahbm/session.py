"""What `init_process_group` sets up: an emulator, the group of all ranks, and how their collectives are performed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from ahbm.errors import DistributedError, Site
from ahbm.groups import ProcessGroup
from ahbm.report import bandwidths
from ahbm.world import Operation, Part, World

if TYPE_CHECKING:
    from ahbm._core import Machine
    from ahbm.emulator import Emulator

BACKEND = "ahbm"
TIMEOUT_S = 600.0
"""Wall seconds without any progress after which waiting ranks fail, unless `init_process_group` says otherwise."""

KEPT_CALLS = 1 << 16
"""Calls of a rank that `stats` remembers."""


class BackendError(DistributedError, ValueError):
    """`init_process_group` was asked for a backend that is not this one."""


@dataclass(frozen=True)
class Setup:
    """What a run is asked to use; None leaves the choice to the next in line: spawn, command line, environment."""

    topology: str | Path | Machine | None = None
    ccl: str | Path | None = None
    overrides: Mapping[str, object] | None = None
    algorithm: str | None = None
    timeout_s: float | None = None

    def over(self, other: Setup) -> Setup:
        """This setup where it says something, `other` where it does not."""
        return Setup(
            *(getattr(other, f.name) if getattr(self, f.name) is None else getattr(self, f.name) for f in fields(Setup))
        )

    def emulator(self) -> Emulator:
        """The emulator this setup asks for. Raises TopologyError or ConfigError."""
        from ahbm.emulator import Emulator

        return Emulator.load(self.topology, self.ccl, self.overrides)


_NOTHING = Setup()
_ambient: ContextVar[Setup] = ContextVar("ahbm_setup", default=_NOTHING)


def ambient() -> Setup:
    """The setup that holds where `spawn` and `init_process_group` say nothing."""
    return _ambient.get()


@contextmanager
def using(setup: Setup) -> Iterator[None]:
    """Makes `setup` the ambient one inside the `with` block."""
    token = _ambient.set(setup.over(ambient()))
    try:
        yield
    finally:
        _ambient.reset(token)


@dataclass(frozen=True)
class CallRecord:
    """One performed collective or send/receive."""

    collective: str
    group: str
    ranks: int
    bytes: int
    """Size in the sense of nccl-tests: one rank's tensor, or all ranks' chunks where the collective has chunks."""
    dtype: str
    op: str
    algorithm: str
    start_ns: float
    latency_ns: float
    algbw_gbs: float
    busbw_gbs: float
    timeline_hash: int


class Session:
    """One generation of a world's process groups: between `init_process_group` and `destroy_process_group`."""

    def __init__(self, setup: Setup, emulator: Emulator, size: int) -> None:
        self.setup = setup
        self.emulator = emulator
        self.world_group = ProcessGroup("WORLD", tuple(range(size)))
        self.calls: list[deque[Part]] = [deque(maxlen=KEPT_CALLS) for _ in range(size)]
        """Per rank: what it has issued, oldest first."""
        self._made: list[ProcessGroup] = []

    def perform(self, operation: Operation) -> int:
        """Runs one collective on the emulator; returns its end in simulated ps."""
        parts = operation.ordered()
        group = parts[0].terms["group"]
        assert isinstance(group, ProcessGroup)
        start_ps = max([group.ends_ps, *(part.clock_ps for part in parts)])
        group.ends_ps = start_ps + self._run(operation, parts, start_ps, group.ranks, root=self._root(parts, group))
        return group.ends_ps

    def perform_pair(self, operation: Operation) -> int:
        """Runs one matched send and receive; returns its end in simulated ps."""
        parts = operation.ordered()
        group, tag = parts[0].terms["group"], parts[0].terms["tag"]
        assert isinstance(group, ProcessGroup)
        lane = (*operation.members, tag)
        start_ps = max([group.lanes_ps.get(lane, 0), *(part.clock_ps for part in parts)])
        ranks = tuple(sorted(operation.members))
        src, dst = (ranks.index(rank) for rank in operation.members)
        parts = [operation.parts[rank] for rank in ranks]
        group.lanes_ps[lane] = start_ps + self._run(operation, parts, start_ps, ranks, src=src, dst=dst)
        return group.lanes_ps[lane]

    def make_group(self, operation: Operation) -> int:
        """Creates the group that all ranks asked for with `new_group`; takes no simulated time."""
        parts = operation.ordered()
        ranks = parts[0].terms["ranks"]
        assert isinstance(ranks, tuple)
        group = ProcessGroup(f"group {len(self._made) + 1}", ranks)
        self._made.append(group)
        for part in parts:
            part.buffer.append(group)
        return max(part.clock_ps for part in parts)

    @staticmethod
    def _root(parts: list[Part], group: ProcessGroup) -> int:
        root = parts[0].terms.get("root")
        return group.rank_of(root) if isinstance(root, int) else 0

    def _run(
        self,
        operation: Operation,
        parts: list[Part],
        start_ps: int,
        ranks: tuple[int, ...],
        *,
        root: int = 0,
        src: int | None = None,
        dst: int | None = None,
    ) -> int:
        terms, tensor = parts[0].terms, parts[0].buffer
        collective, dtype, op = (str(terms.get(key, "")) for key in ("collective", "dtype", "op"))
        outcome = self.emulator.collective(
            collective,
            [part.buffer for part in parts],
            ranks=ranks,
            dtype=dtype,
            op=op or "sum",
            algorithm=self.setup.algorithm if collective == "all_reduce" else None,
            placement=terms.get("placement"),  # type: ignore[arg-type]
            root=root,
            src=src,
            dst=dst,
        )
        # A device tensor's tiles are contributions of their own, and the size is that of one.
        contributions, nbytes = (
            (len(tensor) * len(parts), tensor[0].nbytes) if tensor.ndim == 2 else (len(parts), tensor.nbytes)
        )
        algbw, busbw = bandwidths(collective, contributions, nbytes, outcome.latency_ps)
        group = terms["group"]
        assert isinstance(group, ProcessGroup)
        operation.record = CallRecord(
            collective,
            group.name,
            contributions,
            nbytes,
            dtype,
            op,
            outcome.algorithm,
            start_ps / 1000,
            outcome.latency_ps / 1000,
            algbw,
            busbw,
            outcome.timeline_hash,
        )
        return outcome.latency_ps


@dataclass
class Context:
    """The calling thread's rank."""

    world: World
    rank: int
    lobby: Lobby
    generation: int = 0
    session: Session | None = None


class Lobby:
    """Where the ranks of one world agree on a session."""

    def __init__(self, first: Setup | None = None, emulator: Emulator | None = None) -> None:
        self.first = first or Setup()
        self._emulator = emulator
        self._lock = threading.Lock()
        self._entries: list[tuple[Setup, Session | BaseException, Site]] = []

    def session(self, context: Context, asked: Setup, backend: str, origin: str) -> Session:
        """The session of the context's generation, created by the first rank that asks for it.

        Raises BackendError (AHBM-X101), DistributedError AHBM-X104 for an impossible number of ranks and AHBM-X110
        when the ranks ask for different things, TopologyError and ConfigError.
        """
        from ahbm.world import clone

        setup = asked.over(self.first).over(ambient())
        site = Site(f"rank {context.rank}: backend={backend!r}, {setup}", origin)
        with self._lock:
            if len(self._entries) == context.generation:
                self._entries.append((setup, self._create(context, setup, backend, site), site))
            agreed, session, first_site = self._entries[context.generation]
        if isinstance(session, BaseException):
            raise clone(session)
        if agreed != setup or backend != BACKEND:
            differing = [f.name for f in fields(Setup) if getattr(agreed, f.name) != getattr(setup, f.name)]
            raise DistributedError(
                "AHBM-X110",
                f"init_process_group: the ranks disagree on {', '.join(differing) or 'backend'}",
                sites=[first_site, site],
                hint="pass the same arguments on every rank",
            )
        return session

    def _create(self, context: Context, setup: Setup, backend: str, site: Site) -> Session | BaseException:
        if backend != BACKEND:
            return BackendError(
                "AHBM-X101",
                f"unknown backend {backend!r}",
                sites=[site],
                hint=f'this library is one backend: backend="{BACKEND}"',
            )
        try:
            emulator = self._emulator if setup == self.first and self._emulator is not None else setup.emulator()
            check_world_size(context.world.size, emulator.world_size, "ahbm.spawn" if self._emulator else "this script")
        except Exception as error:
            return error
        return Session(setup, emulator, context.world.size)


def check_world_size(size: int, capacity: int, who: str) -> None:
    """Raises DistributedError (AHBM-X104) unless `size` ranks are what `capacity` SIPs can take."""
    if who == "this script" and capacity != size:
        raise DistributedError(
            "AHBM-X104",
            f"this script is one rank, but the configured world has {capacity}",
            hint="start the ranks with ahbm.spawn(worker)",
        )
    if not 1 <= size <= capacity:
        raise DistributedError(
            "AHBM-X104",
            f"cannot run {size} ranks: the configured world has {capacity}",
            hint="a rank is a SIP: raise system.sips.count, or set world_size in ccl.yaml",
        )
