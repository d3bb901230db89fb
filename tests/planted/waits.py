"""Execution plans with one wait deleted."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ahbm.runs.verdict import CheckOptions, check_file

WAITS = ("wait", "rlxwait", "sem_acquire")
CALLS = 2
MANY_ORDERS = 32
REPORTED = ("race", "wrong", "deadlock")


@dataclass
class Count:
    """Deleted waits of some plans."""

    deleted: int = 0
    matter: int = 0
    """With the wait deleted, some order of execution gives another result, or nothing orders some accesses."""
    reported: int = 0
    """Of those that matter, reported as a race, a wrong result or a deadlock by a check with its default options."""
    leftover: int = 0
    """Of the others, reported as signals that nobody waits for."""

    def add(self, other: Count) -> None:
        """Adds the counts of other plans."""
        self.deleted += other.deleted
        self.matter += other.matter
        self.reported += other.reported
        self.leftover += other.leftover


Place = tuple[Any, ...]


def waits(document: dict[str, Any]) -> Iterator[Place]:
    """The places of all waits of a plan."""

    def places(ops: list[dict[str, Any]], path: Place) -> Iterator[Place]:
        for index, op in enumerate(ops):
            if op["name"] in WAITS:
                yield (*path, index)
            yield from places(op.get("ops", []), (*path, index, "ops"))

    for g, gpu in enumerate(document["gpus"]):
        for t, block in enumerate(gpu["threadblocks"]):
            yield from places(block["ops"], ("gpus", g, "threadblocks", t, "ops"))


def without(document: dict[str, Any], place: Place) -> dict[str, Any]:
    """The plan that lacks the wait at `place`."""
    mutant = copy.deepcopy(document)
    parent: Any = mutant
    for key in place[:-1]:
        parent = parent[key]
    del parent[place[-1]]
    return mutant


def count(document: dict[str, Any], folder: Path, most: int | None = None) -> tuple[Count, list[str]]:
    """Deletes each wait of a plan in turn (evenly chosen ones when there are more than `most`); the counts, and the
    places of those that matter and are not reported. A plan that is not correct itself has no waits to delete."""
    path = folder / "plan.json"
    total, missed = Count(), []
    path.write_text(json.dumps(document), encoding="utf-8")
    if check_file(path, CheckOptions(calls=CALLS)).verdict != "correct":
        return total, missed
    places = list(waits(document))
    step = 1 if most is None else max(1, len(places) // most)
    for place in places[::step]:
        path.write_text(json.dumps(without(document, place)), encoding="utf-8")
        found = check_file(path, CheckOptions(calls=CALLS))
        total.deleted += 1
        if found.verdict in REPORTED:
            total.matter += 1
            total.reported += 1
        elif check_file(path, CheckOptions(calls=CALLS, orders=MANY_ORDERS, seed=1)).verdict in REPORTED:
            total.matter += 1
            missed.append("/".join(map(str, place)))
        else:
            total.leftover += any(finding.code == "AHBM-V410" for finding in found.findings)
    return total, missed
