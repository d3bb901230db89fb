"""Plans: MSCCL-IR and MSCCL++ execution plans, with one step or operation changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ahbm.runs.verdict import Checked, CheckOptions, check_file

from .case import Case

Step = dict[str, Any]
"""A step of MSCCL-IR: type, source, destination, and the block and step it depends on."""


def ring_steps(n: int, rank: int) -> list[Step]:
    """A ring all-reduce."""
    steps = []
    for k in range(n - 1):
        steps += [_step("s", rank - k, n), _step("rrc", rank - k - 1, n)]
    for k in range(n - 1):
        steps += [_step("s", rank + 1 - k, n), _step("r", rank - k, n)]
    return steps


def _step(kind: str, chunk: int, n: int) -> Step:
    return {"type": kind, "src": ("i", chunk % n), "dst": ("i", chunk % n)}


def xml(n: int, blocks: Callable[[int], list[list[Step]]], collective: str = "allreduce", scratch: int = 0) -> str:
    """MSCCL-IR of `blocks(rank)`; block 0 has the queues of a ring."""
    lines = [
        f'<algo name="planted" proto="Simple" nchannels="1" nchunksperloop="{n}" ngpus="{n}" coll="{collective}" '
        'inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
    ]
    for rank in range(n):
        lines.append(f'<gpu id="{rank}" i_chunks="{n}" o_chunks="{n}" s_chunks="{scratch}">')
        all_blocks = blocks(rank)
        depended = {step["on"] for steps in all_blocks for step in steps if "on" in step}
        for block, steps in enumerate(all_blocks):
            ends = (f'"{(rank + 1) % n}"', f'"{(rank - 1) % n}"') if block == 0 else ('"-1"', '"-1"')
            lines.append(f'<tb id="{block}" send={ends[0]} recv={ends[1]} chan="0">')
            for index, step in enumerate(steps):
                on = step.get("on", (-1, -1))
                lines.append(
                    f'<step s="{index}" type="{step["type"]}" srcbuf="{step["src"][0]}" srcoff="{step["src"][1]}" '
                    f'dstbuf="{step["dst"][0]}" dstoff="{step["dst"][1]}" cnt="1" depid="{on[0]}" deps="{on[1]}" '
                    f'hasdep="{int((block, index) in depended)}"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def through_scratch(n: int, rank: int) -> list[list[Step]]:
    """A ring whose first arrival is received into scratch and added by a second block."""
    first = [
        {"type": "s", "src": ("i", rank), "dst": ("i", rank)},
        {"type": "r", "src": ("i", 0), "dst": ("s", 0)},
    ]
    chunk = (rank - 1) % n
    second = [{"type": "re", "src": ("s", 0), "dst": ("i", chunk), "on": (0, 1)}]
    rest = ring_steps(n, rank)[2:]
    rest[0] = {**rest[0], "on": (1, 0)}
    return [first + rest, second]


def change(steps: list[Step], index: int, **new: Any) -> list[Step]:
    """The steps with one of them changed."""
    return [{**step, **new} if at == index else step for at, step in enumerate(steps)]


def xml_cases() -> Iterator[tuple[str, str | None, str, CheckOptions]]:
    """Name, class of the bug, text and settings."""
    plain = CheckOptions()
    for n in (2, 3, 4, 5, 6, 8):
        yield f"ring of {n}", None, xml(n, lambda rank, n=n: [ring_steps(n, rank)]), plain
        if n > 2:
            yield (
                f"ring of {n} through scratch",
                None,
                xml(n, lambda rank, n=n: through_scratch(n, rank), scratch=1),
                plain,
            )

    def mutant(n: int, edit: Callable[[list[Step]], list[Step]], everybody: bool = False) -> str:
        return xml(n, lambda rank: [edit(ring_steps(n, rank)) if everybody or rank == 1 else ring_steps(n, rank)])

    for n in (3, 4, 5):
        last = 2 * (n - 1) - 1
        yield f"ring of {n}: arrival replaces", "missing rank", mutant(n, lambda s: change(s, 1, type="r")), plain
        yield (
            f"ring of {n}: last arrival replaces",
            "missing rank",
            mutant(n, lambda s, i=last: change(s, i, type="r")),
            plain,
        )
        yield (
            f"ring of {n}: gathers by adding",
            "double count",
            mutant(n, lambda s, i=last + 2: change(s, i, type="rrc")),
            plain,
        )
        yield (
            f"ring of {n}: adds to the last",
            "double count",
            mutant(n, lambda s: change(s, len(s) - 1, type="rrc")),
            plain,
        )
        for index in (1, last + 2):
            yield (
                f"ring of {n}: step {index} one chunk on", "off-by-one chunk",
                mutant(n, lambda s, i=index, n=n: change(s, i, dst=("i", (s[i]["dst"][1] + 1) % n))), plain,
            )  # fmt: skip
        for index in (2, last + 1):
            yield (
                f"ring of {n}: step {index} sends the chunk before", "stale read",
                mutant(n, lambda s, i=index, n=n: change(s, i, src=("i", (s[i]["src"][1] - 1) % n))), plain,
            )  # fmt: skip
        yield f"ring of {n}: receives first", "deadlock", mutant(n, lambda s: [s[1], s[0], *s[2:]], True), plain
        yield f"ring of {n}: no last receive", "deadlock", mutant(n, lambda s: s[:-2], False), plain

        def late(rank: int, n: int = n) -> list[list[Step]]:
            blocks = through_scratch(n, rank)
            blocks[0] = [{k: v for k, v in step.items() if k != "on"} for step in blocks[0]]
            return blocks

        def early(rank: int, n: int = n) -> list[list[Step]]:
            blocks = through_scratch(n, rank)
            blocks[1] = [{k: v for k, v in step.items() if k != "on"} for step in blocks[1]]
            return blocks

        yield f"ring of {n} through scratch: sends too early", "race", xml(n, late, scratch=1), plain
        yield f"ring of {n} through scratch: adds too early", "race", xml(n, early, scratch=1), plain
    for n, slots in ((2, 1), (3, 2), (4, 3)):
        burst = [_step("s", k, slots + 1) for k in range(slots + 1)] + [
            _step("r", k, slots + 1) for k in range(slots + 1)
        ]
        text = xml(n, lambda _, b=burst: [b], "custom").replace(f'i_chunks="{n}"', f'i_chunks="{slots + 1}"')
        text = text.replace(f'o_chunks="{n}"', f'o_chunks="{slots + 1}"')
        yield f"burst of {slots + 1} among {n}", "credit exhaustion", text, CheckOptions(slots=slots)
        yield f"burst of {slots + 1} among {n}, deeper", None, text, CheckOptions(slots=slots + 1)


def direct(n: int, *, hello: bool = True, goodbye: bool = False) -> dict[str, Any]:
    """All-reduce: everybody puts its input into everybody's scratch, and adds what arrives.

    hello: nobody writes before the owner of the scratch says that it is free; goodbye: the same said at the end.
    """
    gpus = []
    for rank in range(n):
        peers = [peer for peer in range(n) if peer != rank]
        ids = list(range(n - 1))

        def flag(name: str, peer: int) -> dict[str, Any]:
            return {"name": name, "channel_ids": [peer], "channel_type": "memory"}

        ops: list[dict[str, Any]] = []
        if hello:
            ops += [flag("signal", k) for k in ids] + [flag("wait", k) for k in ids] + [{"name": "nop"}]
        for k in ids:
            ops.append(
                {
                    "name": "put",
                    "src_buff": [{"type": "i", "index": 0, "size": 1}],
                    "dst_buff": [{"buffer_id": k, "index": rank, "size": 1}],
                    "channel_type": "memory",
                }
            )
        ops += [{"name": "nop"}] + [flag("signal", k) for k in ids] + [flag("wait", k) for k in ids] + [{"name": "nop"}]
        sources = [{"type": "i", "index": 0, "size": 1}] + [{"type": "s", "index": p, "size": 1} for p in peers]
        ops.append({"name": "re", "src_buff": sources, "dst_buff": [_output()], "reduce_op": "sum"})
        if goodbye:
            ops += [{"name": "nop"}] + [flag("signal", k) for k in ids] + [flag("wait", k) for k in ids]
        block = {
            "id": 0,
            "ops": ops,
            "channels": [{"channel_type": "memory", "channel_ids": ids}],
            "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": ids}],
        }
        gpus.append(
            {
                "id": rank,
                "input_chunks": 1,
                "output_chunks": 1,
                "scratch_chunks": n,
                "threadblocks": [block],
                "channels": [{"channel_type": "memory", "connected_to": peers}],
                "remote_buffers": [{"rank": p, "type": "s", "access_channel_types": ["memory"]} for p in peers],
                "semaphores": [],
            }
        )
    return {
        "name": f"direct {n}",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": False,
        "reuse_resources": False,
        "gpus": gpus,
    }


def _output() -> dict[str, Any]:
    return {"type": "o", "index": 0, "size": 1}


def plan_cases() -> Iterator[tuple[str, str | None, str, CheckOptions]]:
    """Name, class of the bug, text and settings."""
    twice = CheckOptions(calls=2)
    for n in (2, 3, 4, 5):
        for calls in (CheckOptions(), twice):
            for goodbye in (False, True):
                told = f"direct {n}{', goodbye' if goodbye else ''}, {calls.calls} calls"
                yield told, None, json.dumps(direct(n, hello=not goodbye or n % 2 == 0, goodbye=goodbye)), calls
        yield f"direct {n} without hello", "cross-call reuse", json.dumps(direct(n, hello=False)), twice
    for n in (2, 3, 4):
        clean = direct(n, hello=False, goodbye=True)
        ops = clean["gpus"][0]["threadblocks"][0]["ops"]
        of = {name: [i for i, op in enumerate(ops) if op["name"] == name] for name in ("put", "signal", "wait", "re")}

        def mutant(edit: Callable[[list[dict[str, Any]]], None], ranks: tuple[int, ...] = (0,)) -> str:
            document = copy.deepcopy(clean)  # noqa: B023
            for rank in ranks:
                edit(document["gpus"][rank]["threadblocks"][0]["ops"])
            return json.dumps(document)

        for k in range(n - 1):
            yield f"direct {n}: no wait {k}", "race", mutant(lambda o, i=of["wait"][k]: o.pop(i)), twice
            yield (
                f"direct {n}: no last wait {k}",
                "cross-call reuse",
                mutant(lambda o, i=of["wait"][n - 1 + k]: o.pop(i)),
                twice,
            )
            yield f"direct {n}: no signal {k}", "deadlock", mutant(lambda o, i=of["signal"][k]: o.pop(i)), twice
            yield (
                f"direct {n}: put {k} one chunk on", "off-by-one chunk",
                mutant(lambda o, i=of["put"][k], n=n: o[i]["dst_buff"][0].update(index=1 % n if n > 2 else 1)), twice,
            )  # fmt: skip
            yield (
                f"direct {n}: source {k} left out",
                "missing rank",
                mutant(lambda o, i=of["re"][0], k=k: o[i]["src_buff"].pop(1 + k)),
                twice,
            )
            yield (
                f"direct {n}: source {k} twice", "double count",
                mutant(lambda o, i=of["re"][0], k=k: o[i]["src_buff"].append(o[i]["src_buff"][1 + k])), twice,
            )  # fmt: skip
        yield (
            f"direct {n}: own input left out",
            "missing rank",
            mutant(lambda o, i=of["re"][0]: o[i]["src_buff"].pop(0)),
            twice,
        )
        yield (
            f"direct {n}: reduces before it waits",
            "stale read",
            mutant(lambda o, a=of["put"][-1] + 1, b=of["re"][0]: o.insert(a, o.pop(b))),
            twice,
        )
        yield f"direct {n}: waits before it signals", "deadlock", mutant(_wait_first, tuple(range(n))), twice


def _wait_first(ops: list[dict[str, Any]]) -> None:
    signals = [op for op in ops if op["name"] == "signal"]
    rest = [op for op in ops if op["name"] != "signal"]
    ops[:] = rest + signals


def cases(folder: Path) -> Iterator[Case]:
    """The plans; their files are written into `folder`."""
    for source, suffix, made in (("xml", "xml", xml_cases()), ("plan", "json", plan_cases())):
        for index, (name, bug, text, settings) in enumerate(made):
            path = folder / f"{source}_{index}.{suffix}"
            path.write_text(text, encoding="utf-8")

            def check(path: Path = path, settings: CheckOptions = settings) -> Checked:
                return check_file(path, settings)

            yield Case(name, source, bug, check)
