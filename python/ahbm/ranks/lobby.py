"""The lobby, in which the ranks of a world agree on a session: their identities, and the setup they ask for."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from ahbm.errors import DistributedError, Site
from ahbm.ranks.blame import clone
from ahbm.ranks.claims import Claims
from ahbm.ranks.groups import ProcessGroup
from ahbm.ranks.selection import Selection
from ahbm.ranks.session import Session
from ahbm.ranks.setup import Setup, ambient
from ahbm.ranks.world import World

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.selectors.protocol import AnySelector

BACKEND = "ahbm"
TIMEOUT_S = 600.0
"""Wall seconds without any progress after which waiting ranks fail, unless `init_process_group` says otherwise."""


class BackendError(DistributedError, ValueError):
    """`init_process_group` was asked for a backend that is not this one."""


@dataclass
class Context:
    """One rank of a world, and the session that it is in."""

    world: World
    rank: int
    lobby: Lobby
    generation: int = 0
    session: Session | None = None
    selection: Selection | None = None
    """None before the rank is in a session."""
    claims: Claims | None = None
    """What the rank's calls under way read and write; None before the rank is in a session."""

    def select(self, group: ProcessGroup | None, selector: AnySelector, at: int | None = None) -> None:
        """`selector` chooses the algorithms of `group`'s calls, see `Selection.use`."""
        self.choose().use(group, selector, at)

    def choose(self) -> Selection:
        """The selection of this rank, from now on."""
        assert self.session is not None
        if self.selection is None:
            emulator = self.session.emulator
            self.selection = Selection(self.rank, lambda: emulator)
        return self.selection


class Lobby:
    """The meeting point in which the ranks of one world agree on a session."""

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
        setup = asked.over(self.first).over(ambient())
        site = Site(f"rank {context.rank}: backend={backend!r}, {setup}", origin)
        with self._lock:
            if len(self._entries) == context.generation:
                self._entries.append((setup, self._create(context, setup, backend, site), site))
            agreed, session, first_site = self._entries[context.generation]
        if isinstance(session, BaseException):
            raise clone(session)
        if agreed != setup or backend != BACKEND:
            differing = [
                f.name for f in fields(Setup) if f.compare and getattr(agreed, f.name) != getattr(setup, f.name)
            ]
            raise DistributedError(
                "AHBM-X110",
                f"init_process_group: the ranks disagree on {', '.join(differing) or 'backend'}",
                sites=[first_site, site],
                hint="pass the same arguments on every rank",
            )
        return session

    def sessions(self) -> list[Session]:
        """The sessions so far, oldest first."""
        return [session for _, session, _ in self._entries if isinstance(session, Session)]

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
            return Session(setup, emulator, context.world)
        except Exception as error:
            return error


def agree_with_world(size: int, rank: int, asked_size: int, asked_rank: int) -> None:
    """Raises DistributedError: AHBM-X104 for another number of ranks than `size`, X131 for another rank than `rank`;
    -1 asks for none."""
    if asked_size not in (-1, size):
        raise DistributedError(
            "AHBM-X104",
            f"init_process_group: world_size={asked_size}, but this world has {size} rank{'s' if size > 1 else ''}",
            hint=f"ahbm.spawn(worker, nprocs={asked_size}) starts so many; the machine needs as many SIPs: --ranks "
            f'{asked_size}, or overrides={{"system.sips.count": {asked_size}}}',
        )
    if asked_rank not in (-1, rank):
        raise DistributedError(
            "AHBM-X131",
            f"init_process_group: rank={asked_rank}, but this is rank {rank} of {size}",
            hint="ahbm.spawn calls worker(rank) once for each rank: pass that rank on, or leave it out",
        )


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
