"""Random programs of torch.distributed on gloo and on backend "ahbm", compared to the bit.

    python benches/gloo_programs.py [PROGRAMS] [--seed S] [--calls N] [--ranks 2,3,4]

A program is a list of calls that all ranks make: collectives of tensors, lists and objects, messages with and without
tags, in groups, asynchronously and waited for in any order, of all types, operators, shapes and strides. It runs on
both backends in groups of its own. A call's outcome on a rank is the bytes of its tensors, or the error. Where the two
outcomes differ, rules say why; `unexplained` must be none. Prints a table of rules and counts, and the programs that no
rule explains.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

TYPES = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
    "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "bool": torch.bool,
    "c64": torch.complex64, "u16": torch.uint16, "f8": torch.float8_e4m3fn,
}  # fmt: skip
WEIGHTS = {"f32": 6, "i32": 4, "i64": 3, "f64": 3, "f16": 2, "bf16": 2, "i8": 2, "u8": 2, "bool": 2, "c64": 2}
OPERATORS = ("SUM", "SUM", "SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR")
STRIDES = ("whole",) * 6 + ("step", "transposed", "slice", "expanded")
SHAPES = ((1,), (7,), (4, 3), (2, 3, 2), (0,), (), (16,), (3, 1))
BATCH = 120
"""Programs that the same processes run."""
TIMEOUT = timedelta(seconds=5)
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
COLLECTIVES = (
    *REDUCING, "all_reduce", "all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter",
    "all_to_all", "all_to_all_single", "barrier", "all_gather_object", "broadcast_object_list", "gather_object",
    "scatter_object_list", "messages", "messages", "ring", "all_reduce_coalesced",
)  # fmt: skip


# Programs


def program(seed: int, ranks: int, calls: int) -> dict[str, Any]:
    """The program of a seed, which is JSON."""
    draw = random.Random(seed)
    groups = [list(range(ranks))]
    for _ in range(draw.randrange(3)):
        groups.append(sorted(draw.sample(range(ranks), draw.randrange(2, ranks + 1))))
    return {"seed": seed, "ranks": ranks, "groups": groups, "calls": [_call(draw, groups) for _ in range(calls)]}


def _call(draw: random.Random, groups: list[list[int]]) -> dict[str, Any]:
    group = draw.randrange(len(groups))
    members = groups[group]
    n = len(members)
    return {
        "name": draw.choice(COLLECTIVES),
        "group": group,
        "root": draw.choice(members),
        "type": draw.choices(tuple(TYPES), [WEIGHTS.get(name, 1) for name in TYPES])[0],
        "op": draw.choice(OPERATORS),
        "shape": draw.choice(SHAPES),
        "stride": draw.choice(STRIDES),
        "seed": draw.randrange(1 << 30),
        "later": draw.random() < 0.4,
        "sizes": [[draw.randrange(5) for _ in range(n)] for _ in range(n)],
        "even": draw.random() < 0.5,
        "tags": draw.sample(range(5), 3),
        "order": draw.sample(range(3), 3),
        "batched": draw.random() < 0.4,
    }


# Running one


def filled(call: dict[str, Any], rank: int, shape: Any, salt: int = 0, stride: str = "whole") -> torch.Tensor:
    """A tensor with the values of this rank, however it lies; with `call["dense"]` the same values in one piece."""
    if call.get("dense"):
        return filled({**call, "dense": False}, rank, shape, salt, stride).contiguous().clone()
    made = torch.Generator().manual_seed(call["seed"] + 7919 * rank + 104729 * salt)
    dtype, shape = TYPES[call["type"]], tuple(shape)
    if dtype is torch.bool:
        values = torch.randint(0, 2, shape, generator=made).to(dtype)
    elif dtype.is_complex:
        values = torch.complex(torch.randn(shape, generator=made), torch.randn(shape, generator=made)).to(dtype)
    elif dtype.is_floating_point:
        values = (torch.randn(shape, generator=made) * 3).to(dtype)
    else:
        values = torch.randint(0, 100, shape, generator=made).to(dtype)
    if stride == "step":
        room = torch.zeros((*shape[:-1], 2 * shape[-1]) if shape else (), dtype=dtype)
        view = room[..., ::2] if shape else room
    elif stride == "transposed" and len(shape) > 1:
        view = torch.zeros((*shape[:-2], shape[-1], shape[-2]), dtype=dtype).transpose(-1, -2)
    elif stride == "slice" and shape:
        view = torch.zeros((shape[0] + 2, *shape[1:]), dtype=dtype)[1:-1]
    elif stride == "expanded" and shape and shape[0] > 1:
        return values[:1].expand(shape)
    else:
        return values
    return view.copy_(values)


class Run:
    """One rank's run of a program."""

    def __init__(self, made: dict[str, Any], rank: int) -> None:
        self.rank = rank
        self.made = made
        self.groups = [dist.new_group(ranks, timeout=TIMEOUT) for ranks in made["groups"]]
        self.pending: list[tuple[int, Any, Callable[[], Any]]] = []
        self.outcomes: list[Any] = [None] * len(made["calls"])

    def all(self) -> list[Any]:
        """Makes all calls; the outcomes by call."""
        order = random.Random(self.made["seed"])
        for at, call in enumerate(self.made["calls"]):
            if self.rank not in self.made["groups"][call["group"]]:
                continue
            try:
                works, tensors = getattr(self, f"_{call['name']}")(call, self.groups[call["group"]])
                self.pending.append((at, works, tensors))
                if not call["later"]:
                    self._wait(len(self.pending) - 1)
            except Exception as error:
                self.outcomes[at] = _failed(error)
        while self.pending:
            self._wait(order.randrange(len(self.pending)))
        return self.outcomes

    def _wait(self, which: int) -> None:
        at, works, result = self.pending.pop(which)
        try:
            for work in works:
                if work is not None:
                    work.wait()
            self.outcomes[at] = [_bytes(x) for x in result()]
        except Exception as error:
            self.outcomes[at] = _failed(error)

    def _own(self, call: dict[str, Any], salt: int = 0, shape: Any = None) -> torch.Tensor:
        """An operand."""
        return filled(call, self.rank, call["shape"] if shape is None else shape, salt, call["stride"])

    def _room(self, call: dict[str, Any], salt: int = 0, shape: Any = None) -> torch.Tensor:
        """What a call writes to, which repeats no element."""
        stride = "whole" if call["stride"] == "expanded" else call["stride"]
        return filled(call, self.rank, call["shape"] if shape is None else shape, salt, stride)

    def _dense(self, call: dict[str, Any], salt: int = 0, shape: Any = None) -> torch.Tensor:
        """An operand of a call that torch or gloo refuse on the ranks alone on which it has strides: of a message that
        one side refuses, the other never hears."""
        stride = "slice" if call["stride"] == "slice" else "whole"
        return filled(call, self.rank, call["shape"] if shape is None else shape, salt, stride)

    def _members(self, call: dict[str, Any]) -> list[int]:
        members: list[int] = self.made["groups"][call["group"]]
        return members

    def _op(self, call: dict[str, Any]) -> Any:
        return getattr(dist.ReduceOp, call["op"])

    def _all_reduce(self, call: dict[str, Any], group: Any) -> Any:
        x = self._room(call)
        return [dist.all_reduce(x, self._op(call), group, async_op=True)], lambda: [x]

    def _all_reduce_coalesced(self, call: dict[str, Any], group: Any) -> Any:
        xs = [filled(call, self.rank, call["shape"], salt) for salt in range(2)]
        return [dist.all_reduce_coalesced(xs, self._op(call), group, async_op=True)], lambda: xs

    def _reduce(self, call: dict[str, Any], group: Any) -> Any:
        x = self._room(call)
        work = dist.reduce(x, call["root"], self._op(call), group, async_op=True)
        return [work], lambda: [x] if self.rank == call["root"] else []

    def _reduce_scatter(self, call: dict[str, Any], group: Any) -> Any:
        ins = [self._own(call, salt) for salt in range(len(self._members(call)))]
        out = self._room(call, 99)
        return [dist.reduce_scatter(out, ins, self._op(call), group, async_op=True)], lambda: [out]

    def _reduce_scatter_tensor(self, call: dict[str, Any], group: Any) -> Any:
        rows = call["shape"][0] if call["shape"] else 1
        rest = tuple(call["shape"][1:])
        x = self._own(call, 0, (rows * len(self._members(call)), *rest))
        out = filled(call, self.rank, (rows, *rest), 99)
        return [dist.reduce_scatter_tensor(out, x, self._op(call), group, async_op=True)], lambda: [out]

    def _broadcast(self, call: dict[str, Any], group: Any) -> Any:
        x = self._room(call)
        return [dist.broadcast(x, call["root"], group, async_op=True)], lambda: [x]

    def _all_gather(self, call: dict[str, Any], group: Any) -> Any:
        outs = [self._room(call, 50 + salt) for salt in range(len(self._members(call)))]
        return [dist.all_gather(outs, self._own(call), group, async_op=True)], lambda: outs

    def _all_gather_into_tensor(self, call: dict[str, Any], group: Any) -> Any:
        rows = call["shape"][0] if call["shape"] else 1
        rest = tuple(call["shape"][1:])
        x, out = (
            self._own(call, 0, (rows, *rest)),
            filled(call, self.rank, (rows * len(self._members(call)), *rest), 50),
        )
        return [dist.all_gather_into_tensor(out, x, group, async_op=True)], lambda: [out]

    def _gather(self, call: dict[str, Any], group: Any) -> Any:
        mine = self.rank == call["root"]
        outs = [self._room(call, 50 + salt) for salt in range(len(self._members(call)))] if mine else None
        return [dist.gather(self._own(call), outs, call["root"], group, async_op=True)], lambda: outs or []

    def _scatter(self, call: dict[str, Any], group: Any) -> Any:
        mine = self.rank == call["root"]
        ins = [self._own(call, salt) for salt in range(len(self._members(call)))] if mine else None
        out = self._room(call, 50)
        return [dist.scatter(out, ins, call["root"], group, async_op=True)], lambda: [out]

    def _sizes(self, call: dict[str, Any]) -> tuple[list[int], list[int]]:
        """What this rank sends to each and receives from each."""
        me, members = self._members(call).index(self.rank), self._members(call)
        if call["even"]:
            return [2] * len(members), [2] * len(members)
        return call["sizes"][me], [call["sizes"][other][me] for other in range(len(members))]

    def _all_to_all(self, call: dict[str, Any], group: Any) -> Any:
        sends, receives = self._sizes({**call, "even": call["seed"] % 8 > 0})  # gloo refuses most that are uneven
        ins = [self._own(call, salt, (size,)) for salt, size in enumerate(sends)]
        outs = [self._room(call, 50 + salt, (size,)) for salt, size in enumerate(receives)]
        return [dist.all_to_all(outs, ins, group, async_op=True)], lambda: outs

    def _all_to_all_single(self, call: dict[str, Any], group: Any) -> Any:
        sends, receives = self._sizes(call)
        rest = tuple(call["shape"][1:])
        x, out = self._dense(call, 0, (sum(sends), *rest)), self._dense(call, 50, (sum(receives), *rest))
        splits = () if call["even"] else (receives, sends)
        return [dist.all_to_all_single(out, x, *splits, group=group, async_op=True)], lambda: [out]

    def _barrier(self, call: dict[str, Any], group: Any) -> Any:
        return [dist.barrier(group, async_op=True)], list

    def _object(self, call: dict[str, Any], who: int) -> Any:
        return {"rank": who, "text": "x" * (call["seed"] % 70), "list": list(range(who + call["seed"] % 5))}

    def _all_gather_object(self, call: dict[str, Any], group: Any) -> Any:
        found: list[Any] = [None] * len(self._members(call))
        dist.all_gather_object(found, self._object(call, self.rank), group)
        return [], lambda: [repr(found)]

    def _broadcast_object_list(self, call: dict[str, Any], group: Any) -> Any:
        found = [self._object(call, self.rank), None]
        dist.broadcast_object_list(found, call["root"], group)
        return [], lambda: [repr(found)]

    def _gather_object(self, call: dict[str, Any], group: Any) -> Any:
        found: Any = [None] * len(self._members(call)) if self.rank == call["root"] else None
        dist.gather_object(self._object(call, self.rank), found, call["root"], group)
        return [], lambda: [repr(found)]

    def _scatter_object_list(self, call: dict[str, Any], group: Any) -> Any:
        ins: Any = [self._object(call, who) for who in self._members(call)] if self.rank == call["root"] else None
        found: list[Any] = [None]
        dist.scatter_object_list(found, ins, call["root"], group)
        return [], lambda: [repr(found)]

    def _messages(self, call: dict[str, Any], group: Any) -> Any:
        """Three messages of the first rank to the last, told apart by tags."""
        first, last = self._members(call)[0], self._members(call)[-1]
        tags = call["tags"]
        if self.rank == first:
            xs = [self._dense(call, salt) for salt in range(3)]
            return [dist.isend(x, last, group, tag) for x, tag in zip(xs, tags, strict=True)], list
        if self.rank != last:
            return [], list
        outs = [self._dense(call, 50 + salt) for salt in range(3)]
        return [dist.irecv(outs[at], first, group, tags[at]) for at in call["order"]], lambda: outs

    def _ring(self, call: dict[str, Any], group: Any) -> Any:
        members = self._members(call)
        me = members.index(self.rank)
        x, out = self._dense(call), self._dense(call, 50)
        right, left = members[(me + 1) % len(members)], members[me - 1]
        if not call["batched"]:
            return [dist.isend(x, right, group), dist.irecv(out, left, group)], lambda: [out]
        pair = [dist.P2POp(dist.isend, x, right, group), dist.P2POp(dist.irecv, out, left, group)]
        return dist.batch_isend_irecv(pair), lambda: [out]


def _bytes(x: Any) -> str:
    if isinstance(x, str):
        return x
    return bytes(x.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).tolist()).hex()


def _failed(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "text": str(error).splitlines()[0] if str(error) else ""}


def rank_main(folder: Path, rank: int, backend: str) -> None:
    """One rank of all programs that the folder has, each in groups of its own; writes what came of each at once."""
    made = json.loads((folder / "programs.json").read_text())
    size = made[0]["ranks"]
    store = dist.FileStore(str(folder / f"store.{backend}"), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    with (folder / f"{backend}.{rank}").open("a") as out:
        done = sum(1 for _ in (folder / f"{backend}.{rank}").open())
        for one in made[done:]:
            out.write(json.dumps(Run(one, rank).all()) + "\n")
            out.flush()
    dist.destroy_process_group()  # which waits for the others, where rank 0 has the emulator
    os._exit(0)  # threads of gloo's that still hold a tensor abort an interpreter that ends


# Comparing

PRECISION = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-2, "bf16": 1e-1, "c64": 2e-5}


def values(text: str, kind: str) -> torch.Tensor:
    """The elements of an outcome."""
    raw = torch.frombuffer(bytearray.fromhex(text), dtype=TYPES[kind]) if text else torch.empty(0, dtype=TYPES[kind])
    return torch.view_as_real(raw).double() if raw.is_complex() else raw.double()


def why(call: dict[str, Any], gloo: Any, ours: Any, dense: Any) -> str | None:
    """The rule by which the outcomes of a call on a rank differ; None: there is none. `dense`: that of gloo where all
    tensors lie in one piece."""
    gloo_fails, we_fail = isinstance(gloo, dict), isinstance(ours, dict)
    if we_fail and "AHBM-X12" in ours["text"]:  # no refusal: its world has stopped
        return None
    if gloo_fails and we_fail:
        return "both refuse"
    if gloo_fails:
        return "gloo refuses"
    if we_fail:
        return None
    strided = call["stride"] != "whole" and not isinstance(dense, dict) and dense is not None and gloo != dense
    if strided and (ours == dense or why({**call, "stride": "whole"}, dense, ours, None)):
        return "gloo computes a view with strides wrongly"
    if call["type"] == "bool" and call["name"] in (*REDUCING, "all_reduce_coalesced"):
        legal = all(set(bytes.fromhex(text)) <= {0, 1} for text in ours)
        odd = any(set(bytes.fromhex(text)) - {0, 1} for text in gloo)
        return "gloo leaves bytes of 2 and more in bool" if legal and odd else None
    if call["type"] in PRECISION and call["name"] in (*REDUCING, "all_reduce_coalesced"):
        for mine, theirs in zip(ours, gloo, strict=True):
            a, b = values(mine, call["type"]), values(theirs, call["type"])
            bound = PRECISION[call["type"]] * (b.abs().clamp(min=1) if call["op"] == "PRODUCT" else 1 + b.abs())
            if a.shape != b.shape or not bool(((a - b).abs() <= bound).logical_or(a.isnan() & b.isnan()).all()):
                return None
        return "rounded in another order"
    return None


class Compared(NamedTuple):
    """A call's outcomes on a rank."""

    program: dict[str, Any]
    call: int
    rank: int
    rule: str | None
    """"equal", or why they differ; None where nothing explains it."""
    gloo: Any
    ours: Any


def launched(arguments: list[str], size: int, limit_s: float) -> None:
    """Runs this file with these arguments as that many ranks."""
    start = [sys.executable, __file__, *arguments]
    quiet = subprocess.DEVNULL
    running = [
        subprocess.Popen(
            start, env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank)}, stderr=quiet, stdout=quiet
        )
        for rank in range(size)
    ]
    for one in running:
        try:
            one.wait(limit_s)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def outcomes(folder: Path, backend: str, size: int, count: int, limit_s: float) -> list[list[Any]]:
    """Per program and rank, the outcomes of a backend; a program at which its processes die is left out."""
    files = [folder / f"{backend}.{rank}" for rank in range(size)]
    for file in files:
        file.touch()
    while True:
        done = min(sum(1 for _ in file.open()) for file in files)
        if done >= count:
            break
        (folder / f"store.{backend}").unlink(missing_ok=True)
        launched(["--folder", str(folder), "--backend", backend], size, limit_s)
        lines = [file.read_text().splitlines() for file in files]
        least = min(map(len, lines))
        if least < count:  # the next one killed them: nobody has an outcome
            for file, known in zip(files, lines, strict=True):
                file.write_text("".join(f"{line}\n" for line in [*known[:least], "null"]))
    return [[json.loads(file.read_text().splitlines()[at]) for file in files] for at in range(count)]


def out_of_step(one: dict[str, Any], gloo: list[Any]) -> dict[int, int]:
    """By group, the first call that gloo has refused on some of its ranks and not on others."""
    found: dict[int, int] = {}
    for at, call in enumerate(one["calls"]):
        members = one["groups"][call["group"]]
        refused = [gloo[rank] is None or isinstance(gloo[rank][at], dict) for rank in members]
        if any(refused) and not all(refused):
            found.setdefault(call["group"], at)
    return found


def compared(made: list[dict[str, Any]], limit_s: float = 600) -> Iterator[Compared]:
    """Runs programs of one number of ranks on both; yields what came of each call on each rank."""
    size = made[0]["ranks"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "programs.json").write_text(json.dumps(made))
        theirs = outcomes(folder, "gloo", size, len(made), limit_s)
        dense = [{**one, "calls": [{**call, "dense": True} for call in one["calls"]]} for one in made]
        (folder / "dense").mkdir()
        (folder / "dense" / "programs.json").write_text(json.dumps(dense))
        whole = outcomes(folder / "dense", "gloo", size, len(made), limit_s)
        ours = outcomes(folder, "ahbm", size, len(made), limit_s)
    for one, gloo, mine, plain in zip(made, theirs, ours, whole, strict=True):
        broken = out_of_step(one, gloo)
        for rank in range(size):
            for at, call in enumerate(one["calls"]):
                if rank not in one["groups"][call["group"]]:
                    continue
                theirs_at, mine_at = gloo[rank] and gloo[rank][at], mine[rank] and mine[rank][at]
                if mine_at is None or theirs_at is None:
                    rule = None if mine_at is None else "gloo dies"
                elif theirs_at == mine_at:
                    rule = "equal"
                else:
                    rule = why(call, theirs_at, mine_at, plain[rank] and plain[rank][at])
                if rule is None and isinstance(mine_at, list) and at > broken.get(call["group"], at):
                    rule = "gloo is out of step: it has refused an earlier call on some ranks alone"
                yield Compared(one, at, rank, rule, theirs_at, mine_at)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=12)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--backend")
    asked = parser.parse_args()
    if asked.folder is not None:
        rank_main(asked.folder, int(os.environ["RANK"]), asked.backend)
        return
    sizes = [int(size) for size in asked.ranks.split(",")]
    counts: Counter[str] = Counter()
    shown = 0
    for which, size in enumerate(sizes):
        seeds = range(asked.seed + which, asked.seed + asked.programs, len(sizes))
        made = [program(seed, size, asked.calls) for seed in seeds]
        for start in range(0, len(made), BATCH):
            for one, at, rank, rule, theirs, mine in compared(made[start : start + BATCH]):
                counts[rule or "unexplained"] += 1
                if rule is None and shown < 20:
                    shown += 1
                    print(f"unexplained: seed {one['seed']}, {size} ranks, rank {rank}, call {at}: {one['calls'][at]}")
                    print(f"  gloo {theirs}\n  ahbm {mine}")
    total = sum(counts.values())
    print(f"{asked.programs} programs of {asked.calls} calls on {asked.ranks} ranks, {total} outcomes of ranks")
    for rule, count in counts.most_common():
        print(f"  {rule:45} {count}")
    print(f"  {'unexplained':45} {counts['unexplained']}")
    if counts["unexplained"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
