"""Memories of queue slots: the first that holds those of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ahbm._core import Machine
from ahbm.base import codes
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.settings import Settings
from ahbm.errors import ConfigError, LintError

TOO_SMALL = (codes.TOO_SMALL, codes.LEFT_OUT)
"""Codes of a program that does not fit its memories (L100 counts what is not listed)."""

_Built = TypeVar("_Built")


def fitting(machine: Machine, settings: Settings, build: Callable[[Settings], _Built]) -> tuple[_Built, str]:
    """The result of `build` with the first memory tier of the settings that holds the queue slots; a note where that
    tier is not the first. Where the choice is free and none holds them, with as many slots in the last as it holds.

    Raises what `build` raises, LintError (AHBM-L108) where no tier does, ConfigError (AHBM-C122) for a tier that the
    machine does not have.
    """
    tiers = settings.queues.tiers(machine.tiers)
    for tier in tiers:
        if tier not in machine.tiers:
            raise ConfigError(
                "AHBM-C122",
                f"buffer_kind {tier!r} is no slot tier of the machine",
                hint=did_you_mean(tier, machine.tiers),
            )
    for tier in tiers[:-1]:
        try:
            return build(settings.in_tier(tier)), ""
        except LintError as error:
            if any(finding.code not in TOO_SMALL for finding in error.findings):
                raise
    last = settings.in_tier(tiers[-1])
    if len(tiers) == 1:
        return build(last), ""
    note = f"queue slots are in {tiers[-1]}: they do not fit {' or '.join(tiers[:-1])}"
    slots = settings.queues.n_slots
    while True:
        try:
            return build(replace(last, queues=last.queues._replace(n_slots=slots))), note
        except LintError as error:
            if slots == 1 or any(finding.code not in TOO_SMALL for finding in error.findings):
                raise
        # No protocol of plans has more than 8.
        slots = min(slots or 16, 64) // 2
        note = f"queues have {slots} slots in {tiers[-1]}: more do not fit"
