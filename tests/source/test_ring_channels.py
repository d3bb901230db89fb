"""The rings of NCCL with more channels than a node has ranks: rings that cross at one rank share its queue."""

from __future__ import annotations

import pytest

import ahbm

NODES = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "system.sips.topology": "nodes"}


@pytest.mark.parametrize(
    ("collective", "name"),
    [
        ("all_reduce", "nccl_ring_allreduce"),
        ("all_gather", "nccl_ring_all_gather"),
        ("reduce_scatter", "nccl_ring_reduce_scatter"),
    ],
)
@pytest.mark.parametrize(("size", "ranks"), [(2, 4), (4, 8), (3, 9)])
@pytest.mark.parametrize("channels", [1, 4, 5, 8, 16])
def test_any_number_of_channels_is_right(collective: str, name: str, size: int, ranks: int, channels: int) -> None:
    overrides = NODES | {"system.sips.count": ranks, "system.sips.nodes.size": size}
    # Chunks that are short, so that channels go round several times, and not equally often.
    overrides |= {f"algorithms.{name}.channels": channels, f"algorithms.{name}.chunk_bytes": 3000}
    options = {"overrides": overrides, "bytes_per_rank": 77 * 1024 * ranks}
    report = ahbm.run(collective, name, check="result", **options)  # type: ignore[arg-type]
    assert report.wrong == 0


def test_any_number_of_channels_is_right_among_cubes() -> None:
    for channels in (2, 3, 4, 6):
        overrides = {"system.sips.count": 4, "sip.cube_mesh.w": 2, "sip.cube_mesh.h": 1}
        overrides |= {"algorithms.nccl_ring_allreduce.channels": channels}
        options = {"bytes_per_rank": 1 << 16, "placement": ahbm.DPPolicy(cube="row_wise")}
        report = ahbm.run("all_reduce", "nccl_ring_allreduce", overrides=overrides, **options)  # type: ignore[arg-type]
        assert report.wrong == 0
