"""Which algorithm a call of torch's gets: MSCCL++'s selectors, then plans that match, then what ccl.yaml says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ahbm.base.arrays import Hollow
from ahbm.base.logs import notice
from ahbm.choice.configured import Configured
from ahbm.config.ccl import CclConfig
from ahbm.core.choice import PLAN, SELECTOR, Choice
from ahbm.mscclpp.default_plans import installed
from ahbm.mscclpp.environment import OPERATIONS, forced, ranks_per_node
from ahbm.mscclpp.ext import AlgorithmCollectionBuilder
from ahbm.mscclpp.plans import SPELLINGS, Algorithm
from ahbm.mscclpp.registry import ExecutionPlanRegistry
from ahbm.mscclpp.requests import CollectiveRequest
from ahbm.mscclpp.types import DataType
from ahbm.ranks.seat import Call

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator

_OPERATIONS = {ours: theirs for theirs, ours in SPELLINGS.items() if theirs in OPERATIONS}
_TYPES = {kind.value: kind for kind in DataType}


def choose(call: Call, rank: int, emulator: Emulator) -> Choice | None:
    """The choice for `call` of the global `rank`; None leaves it to ccl.yaml.

    MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION chooses the packaged default. Raises what selectors raise, ConfigError
    (AHBM-C180) for what they answer, DistributedError (AHBM-X131) for a plan of other sizes, ConfigError (AHBM-C127).
    """
    name = _OPERATIONS.get(call.collective)
    if name is None:
        return None
    request = call.terms.request
    if forced(name):
        return Configured(emulator, CclConfig.packaged()).choose(request)
    asked = _request(call, name, call.group.rank_of(rank))
    registry, collection = ExecutionPlanRegistry(), AlgorithmCollectionBuilder().build()
    found = collection.ask(0, asked) or registry.select_for(asked, request.nbytes) or collection.ask(1, asked)
    if found is not None:
        if found.plan is not None:
            found.plan.expect(request.nbytes)
        return found.choice(SELECTOR)
    plans: list[Algorithm] = [*registry.plans(), *collection.get_by_collective(name), *installed()]
    for plan in plans:
        if plan.is_dsl_algorithm() and plan.matches(asked, request.nbytes):
            return plan.choice(PLAN)
    _tell_of_others([*registry.plans(), *collection.get_by_collective(name)], asked, request.nbytes)
    return None


def _tell_of_others(plans: Iterable[Algorithm], asked: CollectiveRequest, nbytes: int) -> None:
    """Says once which of a script's own plans a call would have had, were it among as many ranks as they are for."""
    for plan in plans:
        limits = plan.constraints
        if limits is None or not plan.is_dsl_algorithm():
            continue
        theirs = limits.world_size, limits.n_ranks_per_node
        if plan.matches(replace(asked, world_size=theirs[0], n_ranks_per_node=theirs[1]), nbytes):
            own = f"{asked.world_size} ranks, {asked.n_ranks_per_node} per node"
            notice(
                f"the plan {plan.name} is for {theirs[0]} ranks, {theirs[1]} per node: {asked.collective} of {own}, is "
                "left to ccl.yaml"
            )


def _request(call: Call, name: str, rank: int) -> CollectiveRequest:
    request = call.terms.request
    source, target = call.sides or (call.source, call.target)
    return CollectiveRequest(
        world_size=request.world_size,
        n_ranks_per_node=ranks_per_node(request.world_size),
        rank=rank,
        input_buffer=_address(source),
        output_buffer=_address(target),
        message_size=request.nbytes // (request.world_size if name == "allgather" else 1),
        stream=0,
        collective=name,
        dtype=_TYPES.get(request.dtype),
        hints={"root": [request.root]} if name == "broadcast" else {},
    )


def _address(array: Any) -> int:
    return 0 if isinstance(array, Hollow) else int(array.ctypes.data)
