"""Plans that programs have registered, and their selectors: the API of October 2025."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ahbm.errors import ConfigError
from ahbm.mscclpp.plans import Algorithm, ExecutionPlanHandle
from ahbm.mscclpp.requests import CollectiveRequest, ExecutionRequest

PlanSelector = Callable[[list[Algorithm], ExecutionRequest], "Algorithm | None"]


class ExecutionPlanRegistry:
    """The plans of this process. Every call of the class gives the same registry."""

    _instance: ExecutionPlanRegistry | None = None
    _lock = threading.Lock()
    _plans: dict[str, Algorithm]
    _selector: PlanSelector | None
    _default: PlanSelector | None

    def __new__(cls) -> ExecutionPlanRegistry:
        """The registry."""
        with cls._lock:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
                cls._instance._plans, cls._instance._selector, cls._instance._default = {}, None, None
            return cls._instance

    @classmethod
    def reset_instance(cls) -> None:
        """Forgets the registry: the next one is empty."""
        with cls._lock:
            cls._instance = None

    def register_plan(self, plan: ExecutionPlanHandle) -> None:
        """Adds a compiled plan; one that is known already is not added again. Raises ConfigError (AHBM-C180)."""
        if not isinstance(plan, Algorithm) or plan.plan is None:
            raise ConfigError("AHBM-C180", f"{plan!r} is no plan that mscclpp.compile has made")
        self._plans.setdefault(plan.id, plan)

    def set_selector(self, selector: PlanSelector | None) -> None:
        """`selector(plans, request)` chooses among the plans that match a call, or answers None."""
        self._selector = selector

    def set_default_selector(self, selector: PlanSelector | None) -> None:
        """Is asked where the selector answers None."""
        self._default = selector

    def get(self, id: str) -> Algorithm | None:
        """The plan of this id."""
        return self._plans.get(id)

    def plans(self) -> list[Algorithm]:
        """All plans, in the order of registration."""
        return list(self._plans.values())

    def select(
        self,
        collective: str,
        world_size: int,
        n_ranks_per_node: int,
        send_buffer: int,
        recv_buffer: int,
        message_size: int,
        hints: Mapping[str, Any] | None = None,
    ) -> Algorithm | None:
        """The plan that the selectors choose for a call of rank 0; None where none is chosen. See `ExecutionRequest`.

        Raises ConfigError (AHBM-C180) where a selector answers something else than a plan or None.
        """
        request = CollectiveRequest(
            world_size, n_ranks_per_node, 0, send_buffer, recv_buffer, message_size, 0, collective, None, hints or {}
        )
        return self.select_for(request, message_size * (world_size if collective == "allgather" else 1))

    def select_for(self, call: CollectiveRequest, nbytes: int) -> Algorithm | None:
        """As `select`, for the call as a collection's selector sees it; `nbytes` of the larger buffer."""
        plans = [plan for plan in self._plans.values() if plan.matches(call, nbytes)]
        if not plans:
            return None
        request = ExecutionRequest(
            call.collective,
            call.world_size,
            call.n_ranks_per_node,
            call.input_buffer,
            call.output_buffer,
            call.message_size,
            call.hints,
        )
        for selector in (self._selector, self._default):
            found = selector(plans, request) if selector is not None else None
            if found is not None:
                return chosen(found)
        return None


def chosen(answer: object) -> Algorithm:
    """A selector's answer. Raises ConfigError (AHBM-C180) for what is no algorithm."""
    if not isinstance(answer, Algorithm):
        raise ConfigError("AHBM-C180", f"a selector of MSCCL++ chose {answer!r}, which is no algorithm")
    return answer
