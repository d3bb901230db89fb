"""The change to twice the bandwidth between devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ahbm.runs.advice import OF_SIPS, Lever, limiting, of_protocol

if TYPE_CHECKING:
    from ahbm._core import Machine, Program


def more_bandwidth(machine: Machine, programs: Iterable[Program | None]) -> tuple[str, dict[str, str]]:
    """Twice the bandwidth of all links between SIPs, and of the protocols that carry less in any of the `programs`, in
    words and as overrides."""
    names = dict.fromkeys(name for program in set(programs) if program is not None for name in limiting(program))
    keys = (key for name in names for key in of_protocol(name))
    both = Lever("", (*OF_SIPS, *keys), "2x", ()).changes(dict(machine.parameters))
    more = f" and of protocol {' and '.join(sorted(names))}" if names else ""
    return f"twice the bandwidth between devices{more}", both
