"""Kernels: the algorithms that come with AHBM, with one of their `tl` calls changed, and a few written to be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ahbm import DPPolicy
from ahbm.runs.verdict import Checked, check_kernel

from .case import Case

ALGORITHMS = Path(__file__).resolve().parents[2] / "python/ahbm/data/algorithms"
MACHINE: dict[str, object] = {"system.sips.count": 4, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
NUMBERLESS = "race,uninit,leftover,deadlock,result"

MUTANT = '''

class _Mutant:
    """A `tl` whose nth call of one kind does something else."""

    def __init__(self, tl, change, nth):
        self._tl, self._change, self._left, self._held, self._first = tl, change, nth, [], None

    def __getattr__(self, name):
        return getattr(self._tl, name)

    def _now(self, change):
        if change != self._change:
            return False
        self._left -= 1
        return self._left == 0

    def load(self, ptr, *, shape, dtype):
        off = self._tl.itemsize(dtype) * shape[0] if self._now("load the next chunk") else 0
        value = self._tl.load(ptr + off, shape=shape, dtype=dtype)
        self._first = value if self._first is None else self._first
        return value

    def store(self, ptr, value):
        if self._now("store nothing"):
            return
        if self._now("store the first value") and self._first.shape == value.shape:
            value = self._first
        self._tl.store(ptr + (value.nbytes if self._now("store into the next chunk") else 0), value)

    def combine(self, a, b, op):
        if self._now("combine nothing"):
            return a
        if self._now("combine only the arrival"):
            return b
        both = self._tl.combine(a, b, op)
        return self._tl.combine(both, b, op) if self._now("combine twice") else both

    def send(self, *, dir, src):
        if self._now("send the first value") and self._first.shape == src.shape:
            src = self._first
        if self._change == "receive before sending":
            self._held.append((dir, src))
        else:
            self._tl.send(dir=dir, src=src)

    def recv(self, **what):
        if self._now("receive into the next chunk"):
            what["dst"] += self._tl.itemsize(what["dtype"]) * what["shape"][0]
        arrived = self._tl.recv(**what)
        for dir, src in self._held:
            self._tl.send(dir=dir, src=src)
        self._held.clear()
        return arrived


def _mutate(original, change, nth, victims):
    def mutant(*args, tl):
        original(*args, tl=_Mutant(tl, change, nth) if args[-4] in victims else tl)

    return mutant


kernel = _mutate(kernel, {change!r}, {nth}, {victims})
'''

CLASSES = {
    "combine nothing": "missing rank",
    "combine only the arrival": "missing rank",
    "store nothing": "stale read",
    "store the first value": "stale read",
    "send the first value": "stale read",
    "combine twice": "double count",
    "load the next chunk": "off-by-one chunk",
    "store into the next chunk": "off-by-one chunk",
    "receive into the next chunk": "off-by-one chunk",
    "receive before sending": "deadlock",
}
"""What a change of a call is a bug of."""

MUTANTS = {
    "ring_allreduce": [
        ("combine nothing", 1), ("combine nothing", 2), ("combine nothing", 3), ("combine only the arrival", 2),
        ("combine only the arrival", 3), ("store nothing", 1), ("store nothing", 2), ("store nothing", 4),
        ("store the first value", 1), ("send the first value", 2), ("send the first value", 3), ("combine twice", 1),
        ("combine twice", 2), ("combine twice", 3), ("load the next chunk", 1), ("load the next chunk", 2),
        ("store into the next chunk", 2), ("store into the next chunk", 3), ("receive before sending", 0),
    ],
    "ring_reduce_scatter": [
        ("combine nothing", 1), ("combine nothing", 3), ("combine only the arrival", 2), ("combine twice", 1),
        ("combine twice", 2), ("combine twice", 3), ("store nothing", 1), ("load the next chunk", 1),
        ("load the next chunk", 2), ("send the first value", 2), ("send the first value", 3),
        ("receive before sending", 0),
    ],
    "recursive_doubling_allreduce": [
        ("combine nothing", 1), ("combine nothing", 2), ("combine twice", 1), ("combine twice", 2),
        ("store nothing", 1), ("store the first value", 1), ("send the first value", 2),
        ("receive before sending", 0),
    ],
    "tree_allreduce": [("combine nothing", 1), ("combine twice", 1), ("store nothing", 1)],
    "ring_all_gather": [
        ("store nothing", 1), ("store nothing", 2), ("store nothing", 3), ("store the first value", 1),
        ("send the first value", 2), ("send the first value", 3), ("store into the next chunk", 1),
        ("receive before sending", 0),
    ],
    "pairwise_all_to_all": [
        ("store nothing", 1), ("store nothing", 3), ("load the next chunk", 1), ("load the next chunk", 2),
        ("store into the next chunk", 1), ("receive before sending", 0),
    ],
    "binomial_reduce": [("combine nothing", 1), ("combine nothing", 2), ("combine twice", 1), ("store nothing", 1)],
    "binomial_broadcast": [("store nothing", 1)],
    "binomial_gather": [("receive into the next chunk", 1), ("receive into the next chunk", 2)],
    "binomial_scatter": [("receive into the next chunk", 1)],
}  # fmt: skip
"""By algorithm: the call that is changed, and which of them."""

HEAD = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, cube_w * cube_h, dtype)


def kernel(t_ptr, n, world, cubes, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    cube = tl.program_id(axis=1)
    size = n * tl.itemsize(dtype)
    mine, yours = t_ptr + cube * size, t_ptr + (1 - cube) * size
    other = "W" if cube else "E"
    value = tl.load(mine, shape=(n,), dtype=dtype)

    def load(ptr):
        return tl.load(ptr, shape=(n,), dtype=dtype)

    def token(value=value):
        tl.send(dir=other, src=value)
        return tl.recv(dir=other, shape=(n,), dtype=dtype)

"""

TILES = {
    "neighbour's tile while it is written": "tl.store(mine, value + load(yours))",
    "tile that both write": "tl.store(t_ptr, value)",
    "neighbour's tile after a store": "tl.store(mine, value + value); tl.store(mine, load(yours))",
    "token before the read": "token(); tl.store(mine, value + load(yours))",
    "token after the store": "tl.store(mine, value + load(yours)); token()",
    "store into the neighbour's tile": "tl.store(yours, value)",
}
"""Two cubes of a SIP that race."""

ORDERED = {
    "token between read and store": "mix = value + load(yours); token(); tl.store(mine, mix)",
    "read the neighbour's tile only": "load(yours)",
    "store, token, read": "tl.store(mine, value); token(); load(yours); token()",
    "exchange by messages": "tl.store(mine, value + token())",
}
"""Two cubes of a SIP that share tiles and do not race."""

BURST = """
    for _ in range({messages}):
        tl.send(dir="global_E", src=value)
    for _ in range({messages}):
        value = tl.recv(dir="global_W", shape=(n,), dtype=dtype)
    tl.store(mine, value)
"""

ROTATE = """
    current = value
    for _ in range(world - 1):
        tl.send(dir="global_E", src=current)
        current = tl.recv(dir="global_W", shape=(n,), dtype=dtype)
        value = value + current
    tl.store(mine, value)
"""


def cases(folder: Path) -> Iterator[Case]:
    """The kernels; their files are written into `folder`."""

    def case(name: str, bug: str | None, text: str, checks: str = NUMBERLESS, **run: object) -> Case:
        path = folder / f"kernel_{abs(hash_of(name + text)):016x}.py"
        path.write_text(text, encoding="utf-8")

        more: dict[str, Any] = {"bytes_per_rank": 64, "overrides": MACHINE, **run}
        data = more.pop("data", False)

        def check() -> Checked:
            return check_kernel(str(path), None, checks=checks, data=data, **more)

        computes = bug is not None or "result" in checks or checks == "all"
        return Case(name, "kernel", bug, check, str(path), more if computes else None)

    for algorithm, changes in MUTANTS.items():
        source = (ALGORITHMS / f"{algorithm}.py").read_text(encoding="utf-8")
        for change, nth in changes:
            everybody = change == "receive before sending"
            # The last of them is nobody's root, and a root has nothing to combine less than it.
            victims = "(0, 1, 2, 3)" if everybody or algorithm.startswith(("tree", "binomial")) else "(2,)"
            text = source + MUTANT.replace("{change!r}", repr(change)).replace("{nth}", str(nth)).replace(
                "{victims}", victims
            )
            yield case(f"{algorithm}: {change} ({nth})", CLASSES[change], text)
    for name, line in TILES.items():
        yield case(f"tiles: {name}", "race", f"{HEAD}    {line}\n", "race", **_tiles())
    for messages, slots in [(2, 1), (3, 2), (5, 4), (9, 8), (6, 3)]:
        text = HEAD + BURST.replace("{messages}", str(messages))
        yield case(f"burst of {messages} into {slots} slots", "credit exhaustion", text, "deadlock", **_slots(slots))
        text = HEAD + BURST.replace("{messages}", str(slots))
        yield case(f"burst of {slots} into {slots} slots", None, text, "race,uninit,leftover,deadlock", **_slots(slots))
    for dtype in ("f16", "bf16", "f32", "f64"):
        yield case(
            f"rotation in {dtype}", "divergence", HEAD + ROTATE, "divergence", dtype=dtype, data=True,
            bytes_per_rank=4096,
        )  # fmt: skip
        yield case(f"rotation in {dtype}, any order", None, HEAD + ROTATE, dtype=dtype)
    for name, line in ORDERED.items():
        yield case(f"tiles: {name}", None, f"{HEAD}    {line}\n", "race,uninit,leftover,deadlock", **_tiles())
    for path in sorted(ALGORITHMS.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for ranks in (2, 3, 4):
            overrides = {**MACHINE, "system.sips.count": ranks}
            if "REDUCING_SWITCH" in source:
                overrides |= {"system.sips.topology": "nodes", "system.sips.nodes.reduces": True}
            yield case(f"{path.stem} on {ranks}", None, source, overrides=overrides)
    for algorithm in ("ring_allreduce", "recursive_doubling_allreduce", "tree_allreduce"):
        source = (ALGORITHMS / f"{algorithm}.py").read_text(encoding="utf-8")
        yield case(f"{algorithm}, bits", None, source, "all", data=True, bytes_per_rank=1024)


def hash_of(text: str) -> int:
    """A number for a name that is the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _tiles() -> dict[str, object]:
    return {"placement": DPPolicy(cube="row_wise"), "bytes_per_rank": None, "bytes_per_pe": 32}


def _slots(slots: int) -> dict[str, object]:
    return {"overrides": {**MACHINE, "defaults.n_slots": slots, "system.sips.count": 2}}
