"""The change to twice the bandwidth between devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ahbm.runs.advice import LEVERS, Lever, limiting

if TYPE_CHECKING:
    from ahbm._core import Machine, Program

_PROTOCOL = ("max_gbs", "nic_gbs", "channel_gbs")


def wider(machine: Machine, programs: Iterable[Program | None]) -> tuple[str, dict[str, str]]:
    """Twice the bandwidth of all links between SIPs, and of the protocols that carry less in any of the `programs`, in
    words and as overrides."""
    names = dict.fromkeys(
        name for program in set(programs) if program is not None for name in limiting(program.machine)
    )
    keys = tuple(f"protocols.{name}.{key}" for name in names for key in _PROTOCOL)
    both = Lever("", (*LEVERS[0].keys, *keys), "2x", ()).changes(dict(machine.parameters))
    spoken = f" and of protocol {' and '.join(sorted(names))}" if names else ""
    return f"twice the bandwidth between devices{spoken}", both
