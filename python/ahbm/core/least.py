"""The least time of a request on an emulator's machine: with the protocols that its size may have, for one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ahbm.config.protocols import striped, usable
from ahbm.core.compiled import Compiled
from ahbm.core.limits import Bound, Limits, demands
from ahbm.core.with_knobs import WithKnobs
from ahbm.errors import ConfigError

if TYPE_CHECKING:
    from ahbm.base.request import Request
    from ahbm.core.emulator import Emulator


def least(emulator: Emulator, request: Request, sips: Sequence[int], compiled: Compiled | None) -> Bound:
    """As `Emulator.least`."""
    demanded = demands(request)
    if not request.count or not demanded:
        return Bound.known(0, "nothing to move", True)
    # What only states how much it sends need not do what a collective demands.
    program = None if compiled is None or compiled.timed else compiled.program

    more = striped(emulator.machine, sips, request.collective, False, request.shares)

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

    # Not the emulators: whoever keeps a bound lets go of them.
    heard = [(told, each.stripes.on(more)[1]) for told, each in _heard(emulator, request, compiled)]

    def find() -> Bound:
        found = [of(limits).told(told) for told, limits in heard]
        return min(found, key=lambda bound: -1 if bound.ps is None else bound.ps)

    return Bound(find)


def _heard(emulator: Emulator, request: Request, compiled: Compiled | None) -> list[tuple[str, Emulator]]:
    """The machines that a call may find, each with words for it."""
    free = [("", emulator)]
    # Knobs may name a protocol of their own; none carries more than the links.
    if emulator.is_spoken or (compiled is not None and isinstance(compiled.given, WithKnobs)):
        return free
    nbytes = request.tiles * request.nbytes
    try:
        protocols = usable(emulator.machine, nbytes, request.world_size)
    except ConfigError:
        # A size that no protocol is for runs by knobs alone.
        return free
    return [(f" with protocol {each.name}", emulator.speaking(each, nbytes)) for each in protocols] or free
