"""All-reduces by whole arrays around a ring, right and wrong, as files."""

from __future__ import annotations

from pathlib import Path

RING = """
COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n, world, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    acc = cur = tl.load(t_ptr, shape=(n,), dtype=dtype)
    for _ in range(world - {missing}):
        tl.send(dir=f"sip{{(sip_rank + 1) % world}}", src=cur)
        cur = tl.recv(dir=f"sip{{(sip_rank - 1) % world}}", shape=(n,), dtype=dtype)
        acc = {united}
    tl.store(t_ptr, {result})
"""
SPOILT = {"short": {"missing": 2}, "largest": {"united": "tl.maximum(acc, cur)"}, "doubled": {"result": "acc * 2.0"}}
"""Wrong, as contributions show."""
OPAQUE = {"exponential": {"result": "tl.exp(acc)"}}
"""Wrong, as only numbers show."""
ROUNDABOUT = {"roundabout": {"result": "(acc + acc) - acc"}}
"""Right, as only numbers show."""


def write(folder: Path, **changes: dict[str, dict[str, object]]) -> list[str]:
    """Writes kernels, each RING with changes, as `algorithms/NAME.py`; the names."""
    home = folder / "algorithms"
    home.mkdir(exist_ok=True)
    for name, change in changes.items():
        text = RING.format(**{"missing": 1, "united": "acc + cur", "result": "acc", **change})
        (home / f"{name}.py").write_text(text, encoding="utf-8")
    return list(changes)
