"""The algorithms of a machine's own communication library."""

from __future__ import annotations

from ahbm._core import Machine
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.ccl import CclConfig
from ahbm.errors import ConfigError
from ahbm.source.algorithm import Algorithm


def stated_protocol(plan: Algorithm) -> str | None:
    """The protocol of a machine's library that a plan asks for: that of its entry, or its own, unless that is Simple,
    which plans are of that choose none. None for no plan."""
    how = getattr(plan, "how", None)
    if how is None or not plan.is_plan:
        return None
    own = getattr(getattr(plan, "read", None), "protocol", None)
    name: str | None = how.protocol or (None if own == "Simple" else own)
    return name


def candidates(machine: Machine, ccl: CclConfig, collective: str, nbytes: int, ranks: int) -> tuple[str, ...]:
    """The algorithms for `nbytes` bytes of one rank's tensor in a group of `ranks` ranks.

    They are what the user's ccl.yaml says, else those of the machine's library, else the packaged ones.

    Raises as `CclConfig.candidates`, and ConfigError (AHBM-C194) for a library of algorithms that ccl.yaml does not
    name: a topology is data, and names no code.
    """
    own = dict(machine.library).get(collective)
    if not own or ccl.is_own(collective):
        return ccl.candidates(collective, nbytes, ranks)
    if unknown := [name for name in own if name not in ccl.algorithms]:
        raise ConfigError(
            "AHBM-C194",
            f"the machine's library runs {unknown[0]} for {collective}, which ccl.yaml does not name",
            hint=did_you_mean(unknown[0], ccl.algorithms),
        )
    return tuple(own)
