"""The least time of a request on an emulator's machine: with the protocols that its size may have, for one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ahbm.config.protocols import usable
from ahbm.core.compiled import Compiled
from ahbm.core.limits import Bound, Limits, demands
from ahbm.core.with_knobs import WithKnobs
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm._core import Protocol
    from ahbm.base.request import Request
    from ahbm.core.emulator import Emulator


def least(emulator: Emulator, request: Request, sips: Sequence[int], compiled: Compiled | None) -> Bound:
    """As `Emulator.least`."""
    demanded = demands(request)
    if not request.count or not demanded:
        return Bound.known(0, "nothing to move", True)
    # What only states how much it sends need not do what a collective demands.
    program = None if compiled is None or compiled.timed else compiled.program

    def of(limits: Limits) -> Bound:
        found = [
            limits.bound(
                demand.collective,
                sips,
                demand.nbytes,
                root=demand.root,
                dst=demand.dst,
                tiles=None if request.placement is None else request.tiles,
                program=program,
                own=request.ranks,
                around=demand.around,
            )
            for demand in demanded
        ]
        return max(found, key=lambda bound: -1 if bound.ps is None else bound.ps)

    ways = _ways(emulator, request, compiled)
    found = [(label, emulator.priced(emulator.costs(request, protocol, sips=sips))[1]) for label, protocol in ways]

    def find() -> Bound:
        bounds = [of(limits).labelled(label) for label, limits in found]
        return min(bounds, key=lambda bound: -1 if bound.ps is None else bound.ps)

    return Bound(find)


def _ways(emulator: Emulator, request: Request, compiled: Compiled | None) -> list[tuple[str, Protocol | None]]:
    """The protocols that a call may have, each with words for it."""
    free: list[tuple[str, Protocol | None]] = [("", None)]
    # Knobs may name a protocol of their own; none carries more than the links.
    if compiled is not None and isinstance(compiled.given, WithKnobs):
        return free
    nbytes = request.tiles * request.nbytes
    try:
        protocols = usable(emulator.machine, nbytes, request.world_size)
    except ConfigError:
        # A size that no protocol is for runs by knobs alone.
        return free
    return [(f" with protocol {each.name}", each) for each in protocols] or free
