"""Bugs of many classes, planted at random places."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import numpy as np

from planted.judge.calls import NUMBERS, WHOLE, Call, Kernel

from .onesided import Json
from .queued import Queued, Step

NONE = "none"
NARROWER = {
    "f16": ["i8"], "f32": ["f16", "i16"], "f64": ["f32", "i32"], "i16": ["i8", "u8"], "i32": ["i16", "i8", "f16"],
    "i64": ["i32", "f32"], "u8": ["i8"], "i8": ["u8"],
}  # fmt: skip
SAME_SIZE = {"f16": "i16", "f32": "i32", "f64": "i64", "i8": "u8", "i16": "f16", "i32": "f32", "i64": "f64", "u8": "i8"}
SENDS, RECEIVES = ("s", "rrs", "rcs", "rrcs"), ("r", "rrc", "rrs", "rcs", "rrcs")


class InapplicableError(Exception):
    """The program has no place for this bug."""


def _some(chance: Random, places: Any) -> Any:
    found = list(places)
    if not found:
        raise InapplicableError
    return chance.choice(found)


def _moved(chance: Random, items: list[Any], at: int) -> None:
    """Moves an item to another place, mostly a near one."""
    if len(items) < 2:
        raise InapplicableError
    to = chance.randrange(max(0, at - 3), min(len(items), at + 4))
    if to == at:
        to = at - 1 if at else at + 1
    items.insert(to, items.pop(at))


def _swapped(chance: Random, items: list[Any], places: list[int]) -> None:
    if len(places) < 2:
        raise InapplicableError
    first = chance.randrange(len(places) - 1)
    a, b = places[first], places[first + 1]
    items[a], items[b] = items[b], items[a]


# Plans of thread blocks.


def queued(plan: Queued, bug: str, chance: Random) -> Queued:
    """A copy of the plan with a bug. Raises InapplicableError."""
    plan = copy.deepcopy(plan)
    blocks = [block for blocks in plan.ranks for block in blocks]
    steps = [(block, at, step) for block in blocks for at, step in enumerate(block.steps)]

    def of(kinds: tuple[str, ...]) -> Any:
        return _some(chance, [place for place in steps if place[2].kind in kinds])

    if bug == "message dropped":
        block, at, step = of(SENDS if chance.random() < 0.5 else RECEIVES)
        if step.kind in ("rrs", "rcs", "rrcs") and chance.random() < 0.7:
            step.kind = {"rcs": "r", "rrcs": "rrc", "rrs": "rrc"}[step.kind]
        elif step.kind == "s" and chance.random() < 0.5:
            _drop_arrival(plan, block, at)
            del block.steps[at]
        else:
            del block.steps[at]
    elif bug == "message doubled":
        block, at, step = of(SENDS)
        again = Step("s", step.source if step.kind == "s" else step.target, step.target, step.count)
        block.steps.insert(at + 1, again)
    elif bug == "message redirected":
        rank, block = _some(chance, [(r, b) for r, bs in enumerate(plan.ranks) for b in bs if max(b.send, b.recv) >= 0])
        others = [other for other in range(len(plan.ranks)) if other != rank]
        way = chance.choice([way for way in ("send", "recv") if getattr(block, way) >= 0])
        setattr(block, way, _some(chance, [other for other in others if other != getattr(block, way)]))
    elif bug == "message moved":
        block, at, _ = of(SENDS + RECEIVES)
        _moved(chance, block.steps, at)
    elif bug == "messages swapped":
        block = _some(chance, blocks)
        kind = chance.choice([SENDS, RECEIVES])
        _swapped(chance, block.steps, [at for at, step in enumerate(block.steps) if step.kind in kind])
    elif bug == "wait dropped":
        _some(chance, [step for _, _, step in steps if step.on]).on = None
    elif bug == "wait moved":
        block, at, step = _some(chance, [place for place in steps if place[2].on])
        if chance.random() < 0.5:
            other = _some(chance, [s for s in block.steps if s is not step and not s.on])
            other.on, step.on = step.on, None
        else:
            home = next(b for b in blocks if step.on in b.steps)
            step.on = _some(chance, [s for s in home.steps if s is not step.on])
            step.on.reports = True
    elif bug == "signal dropped":
        _some(chance, [step for _, _, step in steps if step.reports]).reports = False
    elif bug == "offset shifted":
        _, _, step = _some(chance, steps)
        reads = step.kind in ("s", "rrc", "rrs", "rrcs", "cpy", "re")
        writes = step.kind in ("r", "rrc", "rcs", "rrcs", "cpy", "re")
        name = chance.choice([n for n, used in (("source", reads), ("target", writes)) if used] or ["source"])
        letter, chunk = getattr(step, name)
        setattr(step, name, (letter, chunk + chance.choice([-1, 1])))
    elif bug == "wrong buffer":
        _, _, step = _some(chance, steps)
        name = chance.choice(["source", "target"])
        letter, chunk = getattr(step, name)
        setattr(step, name, (chance.choice([other for other in "ios" if other != letter]), chunk))
    elif bug == "contribution lost":
        block, at, step = of(("rrc", "rrs", "rrcs", "re", "cpy"))
        if step.kind in ("re", "cpy"):
            del block.steps[at]
        else:
            step.kind = {"rrc": "r", "rrs": "rcs", "rrcs": "rcs"}[step.kind]
    elif bug == "contribution doubled":
        block, at, step = of(("r", "re", "rcs", "rrc"))
        if step.kind in ("re", "rrc"):
            block.steps.insert(at + 1, Step("re", step.source, step.target, step.count))
        else:
            step.source = step.target
            step.kind = {"r": "rrc", "rcs": "rrcs"}[step.kind]
    elif bug == "wrong root":
        plan = _relabelled(plan, chance)
    else:
        raise InapplicableError
    return plan


def _drop_arrival(plan: Queued, sender: Any, at: int) -> None:
    """Removes the receive of a message, if it is a plain one."""
    nth = sum(step.kind in SENDS for step in sender.steps[:at])
    rank = next(rank for rank, blocks in enumerate(plan.ranks) if sender in blocks)
    for block in plan.ranks[sender.send]:
        if (block.recv, block.chan) == (rank, sender.chan):
            arriving = [step for step in block.steps if step.kind in RECEIVES]
            if nth < len(arriving) and arriving[nth].kind in ("r", "rrc"):
                block.steps.remove(arriving[nth])
                return
    raise InapplicableError


def _relabelled(plan: Queued, chance: Random) -> Queued:
    """The same with two ranks exchanged: rooted elsewhere, or indexed by somebody else's number."""
    a, b = chance.sample(range(len(plan.ranks)), 2)
    names = {a: b, b: a}
    plan.ranks[a], plan.ranks[b] = plan.ranks[b], plan.ranks[a]
    for blocks in plan.ranks:
        for block in blocks:
            block.send, block.recv = names.get(block.send, block.send), names.get(block.recv, block.recv)
    return plan


# Execution plans.

MEETS = {"wait": ("wait", "rlxwait"), "signal": ("signal", "rlxsignal"), "barrier": ("barrier",), "flush": ("flush",),
         "semaphore": ("sem_acquire", "sem_release")}  # fmt: skip
DATA = ("put", "get", "copy", "re", "res", "rre", "ppkt", "repkt", "upkt", "cpkt")


def onesided(plan: Json, bug: str, chance: Random) -> Json:
    """A copy of the plan with a bug. Raises InapplicableError."""
    plan = copy.deepcopy(plan)
    blocks = [block for gpu in plan["gpus"] for block in gpu["threadblocks"]]
    places = [(block["ops"], at, op) for block in blocks for at, op in enumerate(block["ops"])]

    def of(names: tuple[str, ...]) -> Any:
        return _some(chance, [place for place in places if place[2]["name"] in names])

    what, _, action = bug.rpartition(" ")
    if what in MEETS:
        ops, at, op = of(MEETS[what])
        ids = op.get("channel_ids") or op.get("semaphore_ids") or []
        if action == "dropped":
            if len(ids) > 1 and chance.random() < 0.5:
                ids.pop(chance.randrange(len(ids)))
            else:
                del ops[at]
        elif action == "doubled":
            ops.insert(at, copy.deepcopy(op))
        elif action == "moved":
            _moved(chance, ops, at)
        else:
            raise InapplicableError
    elif bug == "message dropped":
        ops, at, _ = of(("put", "get", "ppkt", "copy", "upkt", "cpkt"))
        del ops[at]
    elif bug == "message doubled":
        ops, at, op = of(("put", "get", "ppkt", "copy", "upkt"))
        ops.insert(chance.randrange(at, len(ops)) + 1, copy.deepcopy(op))
    elif bug == "message redirected":
        _, _, op = of(("put", "get", "ppkt", "rre", "signal", "wait", "res"))
        refs = [ref for key in ("src_buff", "dst_buff") for ref in op.get(key, []) if "buffer_id" in ref]
        if refs:
            _shift(_some(chance, refs), "buffer_id", chance)
        elif op.get("channel_ids"):
            k = chance.randrange(len(op["channel_ids"]))
            _shift(op["channel_ids"], k, chance)
        else:
            raise InapplicableError
    elif bug == "message moved":
        ops, at, _ = of(DATA)
        _moved(chance, ops, at)
    elif bug == "messages swapped":
        ops = _some(chance, blocks)["ops"]
        _swapped(chance, ops, [at for at, op in enumerate(ops) if op["name"] != "nop"])
    elif bug == "offset shifted":
        _, _, op = of(DATA)
        _shift(_some(chance, op["src_buff"] + op["dst_buff"]), "index", chance)
    elif bug == "wrong buffer":
        ref = _some(chance, [ref for _, _, op in places for key in ("src_buff", "dst_buff") for ref in op.get(key, [])
                             if "type" in ref])  # fmt: skip
        ref["type"] = chance.choice([other for other in "ios" if other != ref["type"]])
    elif bug == "contribution lost":
        _, _, op = of(("re", "res", "rre", "repkt"))
        op["src_buff"].pop(chance.randrange(len(op["src_buff"])))
    elif bug == "contribution doubled":
        _, _, op = of(("re", "res", "rre", "repkt"))
        op["src_buff"].append(copy.deepcopy(op["src_buff"][chance.randrange(1, len(op["src_buff"]))]))
    elif bug == "wrong operator":
        of(("re", "res", "rre", "repkt"))[2]["reduce_op"] = chance.choice(["max", "min"])
    else:
        raise InapplicableError
    return plan


def _shift(holder: Any, key: Any, chance: Random) -> None:
    value = holder[key] + chance.choice([-1, 1])
    if value < 0:
        value = holder[key] + 1
    holder[key] = value


# Kernels.


def kernel(made: Kernel, bug: str, chance: Random) -> Kernel:
    """A copy of the kernel with a bug on one rank, or on all. Raises InapplicableError."""
    made = copy.deepcopy(made)
    if bug == "wrong root":
        a, b = chance.sample(range(made.ranks), 2)
        names = {f"sip{a}": f"sip{b}", f"sip{b}": f"sip{a}"}
        made.calls[a], made.calls[b] = made.calls[b], made.calls[a]
        made.calls = [[tuple(names.get(str(x), x) for x in call) for call in calls] for calls in made.calls]
        return made
    if bug == "kernel empty":
        made.calls[chance.randrange(made.ranks)] = []
        return made
    rank = chance.randrange(made.ranks)
    everybody = chance.random() < 0.2
    seed = chance.random()
    done = 0
    for at in range(made.ranks) if everybody else [rank]:
        try:
            _calls(made, made.calls[at], at, bug, Random(seed))
            done += 1
        except InapplicableError:
            pass
    if not done:
        raise InapplicableError
    return made


def _calls(made: Kernel, calls: list[Call], rank: int, bug: str, chance: Random) -> None:
    item = np.dtype(NUMBERS[made.dtype]).itemsize

    def of(*names: str) -> int:
        return int(_some(chance, [at for at, call in enumerate(calls) if call[0] in names]))

    def change(at: int, index: int, value: Any) -> None:
        calls[at] = (*calls[at][:index], value, *calls[at][index + 1 :])

    new = 1000 + len(calls)
    if bug == "message dropped":
        at = of("send", "sendref", "recvto")
        del calls[at]
    elif bug == "message doubled":
        at = of("send", "sendref", "recvto")
        calls.insert(at, calls[at])
    elif bug == "message redirected":
        at = of("send", "sendref", "recv", "recvto")
        index = 2 if calls[at][0] == "recv" else 1
        ways = [f"sip{other}" for other in range(made.ranks) if other != rank] + ["global_E", "global_W", None]
        if calls[at][0] in ("send", "sendref"):
            ways.remove(None)
        change(at, index, _some(chance, [way for way in ways if way != calls[at][index]]))
    elif bug == "message moved":
        _moved(chance, calls, of("send", "sendref", "recv", "recvto"))
    elif bug == "messages swapped":
        kind = chance.choice([("send", "sendref"), ("recv", "recvto")])
        _swapped(chance, calls, [at for at, call in enumerate(calls) if call[0] in kind])
    elif bug == "offset shifted":
        at = of("load", "store", "sendref", "recvto")
        index = {"load": 2, "store": 1, "sendref": 2, "recvto": 4}[calls[at][0]]
        step = chance.choice([item, item * made.n if made.collective in WHOLE else item])
        change(at, index, calls[at][index] + chance.choice([-step, step]))
    elif bug == "stale value":
        at = of("store", "send")
        earlier = [call[1] for call in calls[:at] if call[0] in ("load", "recv", "combine", "cast")]
        change(at, 2, _some(chance, [v for v in earlier if v != calls[at][2]]))
    elif bug == "store dropped":
        del calls[of("store")]
    elif bug == "contribution lost":
        at = of("combine")
        lost = calls[at][chance.choice([2, 3])]
        calls[:] = [_renamed(call, calls[at][1], lost) for call in calls[:at] + calls[at + 1 :]]
    elif bug == "contribution doubled":
        at = of("combine")
        name, v, a, b, op = calls[at]
        calls[at : at + 1] = [(name, new, a, b, op), (name, v, new, chance.choice([a, b]), op)]
    elif bug == "wrong operator":
        at = of("combine")
        change(at, 4, _some(chance, [op for op in ("sum", "max", "min", "prod") if op != calls[at][4]]))
    elif bug in ("narrow cast", "wide cast"):
        at = of("store", "send")
        v = calls[at][2]
        dtype = next((c[-1] for c in calls[:at] if c[0] in ("load", "recv", "cast", "zeros") and c[1] == v), made.dtype)
        wider = {"f16": ["f32", "f64"], "f32": ["f64"], "i8": ["i16", "i32", "f32"], "i16": ["i32", "f32"],
                 "i32": ["i64", "f64"], "u8": ["u16", "i16"]}  # fmt: skip
        through = _some(chance, (NARROWER if bug == "narrow cast" else wider).get(dtype, []))
        calls[at : at + 1] = [("cast", new, v, through), ("cast", new + 1, new, dtype), (*calls[at][:2], new + 1)]
    elif bug == "wrong dtype":
        at = of("load", "recv")
        change(at, len(calls[at]) - 1, SAME_SIZE[made.dtype])
    else:
        raise InapplicableError


def _renamed(call: Call, old: Any, new: Any) -> Call:
    """A call with a value exchanged."""
    values = {"store": (2,), "send": (2,), "cast": (2,), "combine": (2, 3)}.get(call[0], ())
    return tuple(new if at in values and x == old else x for at, x in enumerate(call))


MESSAGES = ("message dropped", "message doubled", "message redirected", "message moved", "messages swapped")
VALUES = ("offset shifted", "contribution lost", "contribution doubled")
BUGS: dict[str, tuple[str, ...]] = {
    "xml": (*MESSAGES, *VALUES, "wrong buffer", "wait dropped", "wait moved", "signal dropped", "wrong root"),
    "plan": (
        *MESSAGES, *VALUES, "wrong buffer", "wrong operator", "wait dropped", "wait doubled", "wait moved",
        "signal dropped", "signal doubled", "signal moved", "barrier dropped", "barrier moved", "flush dropped",
        "semaphore dropped", "semaphore doubled", "semaphore moved",
    ),
    "kernel": (
        *MESSAGES, *VALUES, "wrong operator", "wrong root", "stale value", "store dropped",
        "narrow cast", "wide cast", "wrong dtype", "kernel empty",
    ),
}  # fmt: skip
"""Classes of bugs by the kind of program."""
