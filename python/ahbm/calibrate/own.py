"""`ahbm calibrate mine.txt --prior NAME`: a cluster of one's own, of few rows and a machine of its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ahbm.calibrate import clusters, templates, written
from ahbm.calibrate.calibration import Calibrated, block, calibrate
from ahbm.calibrate.cleaning import cleaned
from ahbm.calibrate.judged import Judged, errors
from ahbm.calibrate.tables import Row, Table
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError


def calibrated(
    tables: Sequence[Table], prior: str | Path, tell: Callable[[str], object] = lambda text: None
) -> Calibrated:
    """The machine of a cluster whose rows are `tables`, of one collective: where they are silent, it is `prior`, a
    packaged machine or a topology.yaml that was fitted to measurements, as far as clusters of one kind are alike.

    Its errors are those of rows that are left out. Raises ConfigError (AHBM-C195) for tables of what the prior was not
    fitted to, and as `calibration.calibrate`.
    """
    if len(tables) != 1:
        raise ConfigError(
            "AHBM-C195", "--prior is for one table", hint="give tables of several clusters without a prior"
        )
    notes: list[str] = []
    table = cleaned(tables[0], notes) if len(tables[0].rows) > 2 else tables[0]
    machine, tree = load_machine(str(prior)), templates.declared(prior)
    bands = [band for band in machine.bands or () if band[:2] == (table.collective, table.ranks)]
    if not bands:
        of = ", ".join(sorted({f"{band[0]} of {band[1]} ranks" for band in machine.bands or ()})) or "nothing"
        raise ConfigError("AHBM-C195", f"{prior} was fitted to {of}, not to {table.collective} of {table.ranks} ranks")
    tell("running the prior")
    first, last = bands[0][2], max(band[3] for band in bands)
    measured = {row.bytes: row for row in table.measured}
    grid = {1 << at for at in range(first.bit_length() - 1, last.bit_length()) if first <= 1 << at <= last}
    sizes = sorted({first, last, *grid, *measured})
    emulator = written.emulator(written.sized(tree, table.ranks))
    us = np.array([written.us(emulator, table.collective, table.ranks, size) for size in sizes])
    at = np.array([sizes.index(size) for size in measured])
    factor = np.array([row.us for row in measured.values()]) / us[at]
    known = clusters.own(np.array(sizes, np.float64), us, table.nodes > 1, at.tolist(), factor)
    rows = [Row(size, float(took), f"{prior}") for size, took in zip(sizes, us * known.factor, strict=True)]
    tell("fitting to what both say")
    found = calibrate([replace(table, rows=tuple(rows))], prior, tell)
    took = np.array(found.judged[0].us)
    judged = Judged(
        replace(
            table, rows=tuple(replace(row, us=measured[row.bytes].us) if row.bytes in measured else row for row in rows)
        ),
        tuple(errors(table, table, us[at] * known.held)),
        us=tuple(took.tolist()),
        deviations=tuple(known.deviation.tolist()),
    )
    calibration = found.tree["calibration"]
    made = block(table.accelerator or calibration["accelerator"], [judged], (), np.zeros((0, 0)))
    source = {**made["sources"][0], "rows": len(measured)}
    priors = (tree.get("calibration") or {}).get("sources") or []
    found.tree["calibration"] = {**calibration, "sources": [source, *priors], "bands": made["bands"]}
    return replace(found, judged=(judged,), notes=(*notes, *found.notes), like="your cluster")
