"""The fit of any keys of any machine to tables, by running it: for machines whose laws nobody wrote down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ahbm.base.optional import needed
from ahbm.calibrate import calibration as c
from ahbm.calibrate import cleaning, templates, written
from ahbm.calibrate.coefficients import CHANGE
from ahbm.calibrate.judged import Error, Judged, errors
from ahbm.calibrate.search import SCALE
from ahbm.calibrate.tables import Floats, Table
from ahbm.errors import ConfigError

MOST = 9
_KEY = re.compile(r"([A-Za-z_][\w.\-]{0,200})(?:=([0-9.eE+\-]+)\.\.([0-9.eE+\-]+))?")


def calibrate(
    tables: Sequence[Table], template: str | None, free: Sequence[str], accelerator: str | None = None
) -> c.Calibrated:
    """The template with the values of the keys that bring it nearest to the tables.

    free: dotted keys that the template has, with bounds or without; accelerator: whose data sheet it computes by,
    else the template's. Raises ConfigError (AHBM-C195), UnsupportedError (AHBM-U145) without scipy, and as running
    the template.
    """
    if template is None:
        raise ConfigError("AHBM-C195", "--free needs a template", hint="-t names one")
    missing = "scipy is not installed: --free needs it", 'pip install "ahbm[fit]"'
    solve = needed("scipy.optimize", *missing).least_squares
    given = templates.read(template, whole=True)
    base = dict(given.tree if accelerator is None else templates.computing(given.tree, accelerator))
    keys, starts, bounds = [], [], []
    for text in free:
        key, value, least, most = _key(base, text)
        keys.append(key)
        starts.append(np.log(min(max(value, least), most)))
        bounds.append((np.log(least), np.log(most)))
    if not 0 < len(keys) <= MOST:
        raise ConfigError("AHBM-C195", f"{len(keys)} free keys: up to {MOST} can be fitted")
    notes: list[str] = []
    cleaned = [cleaning.cleaned(table, notes) for table in tables]

    def times(point: Floats, which: Sequence[Table]) -> Floats:
        tree = _with(base, keys, np.exp(point))
        found: list[float] = []
        for table in which:
            emulator = written.emulator(written.sized(tree, table.ranks))
            found += [written.us(emulator, table.collective, table.ranks, row.bytes) for row in table.rows]
        return np.asarray(found)

    def fitted(which: Sequence[Table]) -> Any:
        logs = np.log([row.us for table in which for row in table.rows])
        if len(logs) < len(keys):
            raise ConfigError("AHBM-C195", f"{len(logs)} rows are too few for {len(keys)} keys")
        least, most = np.array(bounds).T
        return solve(
            lambda point: np.log(times(point, which)) - logs,
            np.clip(starts, least + 1e-9, most - 1e-9),
            bounds=(least, most), loss="soft_l1", f_scale=SCALE, diff_step=CHANGE, x_scale=1.0, max_nfev=60,
        )  # fmt: skip

    found: list[list[Error]] = [[] for _ in cleaned]
    for held in (True, False):
        seen = [table.half(not held) for table in cleaned]
        if sum(len(table.rows) for table in seen) < len(keys):
            continue
        point = fitted(seen).x
        for number, table in enumerate(cleaned):
            tested = table.half(held)
            found[number] += errors(tested, seen[number], times(point, [tested]))
    best = fitted(cleaned)
    tree = _with(base, keys, np.exp(best.x))
    off = np.abs(np.log(times(best.x, cleaned)) - np.log([row.us for table in cleaned for row in table.rows]))
    covariance = max(1.4826 * float(np.median(off)), 1e-6) ** 2 * np.linalg.inv(
        best.jac.T @ best.jac + 1e-9 * np.eye(len(keys))
    )
    parameters = tuple(
        c.Parameter(key, float(np.exp(value)), 100 * float(np.sqrt(covariance[at, at])))
        for at, (key, value) in enumerate(zip(keys, best.x, strict=True))
    )
    judged = tuple(
        Judged(table, tuple(sorted(off, key=lambda each: each.bytes)), us=tuple(times(best.x, [table]).tolist()))
        for table, off in zip(cleaned, found, strict=True)
    )
    named = accelerator or tables[0].accelerator
    tree["calibration"] = c.block(named, judged, parameters, covariance)
    if given.ranges:
        tree["calibration"]["ranges"] = given.ranges
    notes += templates.unstated(tree, named)
    return c.Calibrated(tree, None, parameters, judged, 0.0, tuple(notes))


def _key(base: dict[str, Any], text: str) -> tuple[str, float, float, float]:
    """Key, value in the template, and bounds. Raises ConfigError (AHBM-C195)."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise ConfigError(
            "AHBM-C195", f"{text[:80]!r} is no key with bounds", hint="--free launch.overhead_ns=1e3..1e5"
        )
    value: Any = base
    for part in found[1].split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(
            "AHBM-C195", f"the template gives {found[1]} no number to start from", hint="write one above 0 into it"
        )
    try:
        least, most = float(found[2] or value / 1000), float(found[3] or value * 1000)
    except ValueError as error:
        raise ConfigError("AHBM-C195", f"--free {text[:80]}: {error}") from error
    if found[1].endswith(("efficiency", "ramp_exponent")):
        most = min(most, 1.0)
    if not 0 < least < most < float("inf"):
        raise ConfigError("AHBM-C195", f"--free {text[:80]}: bounds grow, and are above 0")
    return found[1], float(value), least, most


def _with(base: dict[str, Any], keys: Sequence[str], values: Floats) -> dict[str, Any]:
    tree = written.copied(base)
    for key, value in zip(keys, values.tolist(), strict=True):
        *parents, last = key.split(".")
        here = tree
        for part in parents:
            here = here[part]
        here[last] = max(round(value), 1) if last.endswith("_bytes") else float(f"{value:.10g}")
    return tree
