"""What is configured for a request."""

from __future__ import annotations

from ahbm.base.request import Request
from ahbm.choice.policy import Policy
from ahbm.core.compiled import Compiled
from ahbm.core.emulator import Emulator
from ahbm.source.algorithm import Algorithm


def configured(emulator: Emulator, request: Request) -> str | Algorithm:
    """The algorithm that the configuration chooses."""
    policy = Policy.of(emulator)
    return policy.algorithm(request, policy.choose(request))


def compiled(emulator: Emulator, request: Request) -> Compiled:
    """The program by that algorithm."""
    return Policy.of(emulator).compile(request, timed=True)
