"""Between what a step is likely to be, by how far the machine's model of kernels and of the host was off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm._core import Machine

BY_SHEET = (20.0, 35.0)
"""Percent by which steps are off where nothing was measured on the accelerator: of the device, as products of an A100,
a V100, an L4 and a T4 are by their sheets (5 to 22 in the median), and of the host."""


def bands(machine: Machine) -> tuple[float, float] | None:
    """Percent by which what the device takes is off, and what the host takes; None for a machine without a model.

    A machine says so in `compute.fit.bands`. One that was fitted to a profile of its own is off, in sums of kernels, by
    no more than its operations are in the median.
    """
    compute = machine.compute
    if compute is None:
        return None
    fit: dict[str, Any] = compute.fit or {}
    if (said := fit.get("bands")) is not None:
        return float(said["device_percent"]), float(said["host_percent"])
    if held := fit.get("held_back"):
        return max(float(held[0]["median_percent"]), 5.0), BY_SHEET[1]
    return BY_SHEET


def likely(machine: Machine, step_ns: float, host_ns: float) -> tuple[float, float]:
    """The least and the most that a step is likely to take, in ns, of which the device waits for the host so long."""
    found = bands(machine)
    if found is None or not step_ns:
        return step_ns, step_ns
    share = min(host_ns / step_ns, 1.0)
    off = (found[0] * (1 - share) + found[1] * share) / 100
    return step_ns / (1 + off), step_ns * (1 + off)
