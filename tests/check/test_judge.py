"""The judge of planted bugs: what is right is right in every order, and it sees every class of bug."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from planted.files import direct
from planted.generator import kernels, onesided, queued
from planted.generator.cases import SOURCES, planted
from planted.generator.mutations import BUGS, InapplicableError
from planted.generator.recorded import packaged, written
from planted.judge.blocks import Blocks
from planted.judge.calls import Kernel
from planted.judge.onesided import OneSided
from planted.judge.world import InvalidError, Subject, judge

HARMLESS = ("wide cast",)
"""Changes that are no bugs."""
TRIES = 200


def right() -> Iterator[tuple[str, Subject]]:
    """Programs of every collective and kind."""
    chance = Random(1)
    for n in (2, 4, 5):
        for name in kernels.PACKAGED:
            count = 1 if "barrier" in name else 3
            for dtype, slots in (("f16", 1), ("i32", 64)):
                root = n - 1 if name.startswith("binomial") else 0
                yield f"{name} on {n}", packaged(name, n, count, dtype, slots, root, "sum")
        for body, collective in kernels.SMALL.items():
            yield f"{body.__name__} on {n}", written(collective, body, n, 1, "f32", 1)
        for collective in ("broadcast", "reduce", "allreduce"):
            yield f"tree {collective} on {n}", Blocks(queued.tree(n, chance, collective).text(), 1)
        for collective in ("allgather", "alltoall", "reducescatter", "allreduce", "gather", "scatter"):
            yield f"direct {collective} on {n}", Blocks(queued.direct(n, chance, collective).text(), 1)
        for make in (queued.ring, queued.gathering_ring):
            yield f"{make.__name__} on {n}", Blocks(make(n, chance).text(), 2)
        for maker in (
            onesided.putting,
            onesided.getting,
            onesided.reading,
            onesided.packets,
            onesided.handing,
            onesided.relaying,
        ):
            yield f"{maker.__name__} on {n}", OneSided(json.dumps(maker(n, chance)))
        yield f"direct plan on {n}", OneSided(json.dumps(direct(n)))


@pytest.mark.slow
def test_right_programs_of_every_collective_are_right() -> None:
    assert [(name, found) for name, subject in right() if (found := judge(subject, "right", orders=3))] == []


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_every_class_of_bug_is_seen(source: str, tmp_path: Path) -> None:
    def seen(bug: str) -> bool:
        for turn in range(10 if bug in HARMLESS else TRIES):
            name = f"{source}/{bug}/{turn}"
            try:
                if judge(planted(name, source, bug, Random(name), tmp_path).subject, name, orders=4):
                    return True
            except (InapplicableError, InvalidError):
                continue
        return False

    assert [bug for bug in BUGS[source] if not seen(bug)] == [bug for bug in HARMLESS if bug in BUGS[source]]


def two(first: list[tuple[object, ...]], second: list[tuple[object, ...]], slots: int, collective: str) -> Kernel:
    return Kernel(collective, "i32", 1, [first, second], slots)


def test_each_kind_of_wrong_has_its_name() -> None:
    """A message of the call before, a cycle, another type, a barrier that holds nobody."""
    load, send, take = ("load", 0, 0, 1, "i32"), ("send", "sip1", 0), ("recv", 0, "sip0", 1, "i32")
    assert judge(two([load, send], [take, ("store", 0, 0)], 1, "broadcast"), "x") is None
    assert judge(two([load, send, send], [take, ("store", 0, 0)], 9, "broadcast"), "x") == "result"
    back = [("recv", 0, "sip1", 1, "i32"), send]
    assert judge(two(back, [take, ("send", "sip0", 0)], 1, "barrier"), "x") == "deadlock"
    assert judge(two([load, send], [(*take[:4], "f32"), ("store", 0, 0)], 1, "broadcast"), "x") == "refused"
    assert judge(two([], [], 1, "barrier"), "x") == "result"


def test_a_rank_that_ends_before_its_data_has_landed_is_wrong() -> None:
    plan = onesided.putting(2, Random(1))
    for gpu in plan["gpus"]:
        assert judge(OneSided(json.dumps(plan)), "x") is None
        ops = gpu["threadblocks"][0]["ops"]
        last = ops.pop()
        assert last["name"] == "wait" and judge(OneSided(json.dumps(plan)), "x") in ("race", "result")
        ops.append(last)
        first = ops.pop(1)
        assert first["name"] == "wait" and judge(OneSided(json.dumps(plan)), "x") in ("race", "result")
        ops.insert(1, first)


def test_signals_that_are_left_over_are_told() -> None:
    plan = onesided.putting(2, Random(1))
    plan["gpus"][0]["threadblocks"][0]["ops"].append({"name": "sem_release", "semaphore_ids": [0]})
    assert judge(OneSided(json.dumps(plan)), "x") == "leftover"
