"""The prior: few steps for small messages, what was made for the network for large ones on several dimensions."""

from __future__ import annotations

import pytest

import ahbm
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.outcomes import Live
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError
from ahbm.selectors.loading import of
from ahbm.selectors.prior import Prior
from ahbm.selectors.protocol import UNKNOWN, Call, Comm, CostTable

NAMES = ("ring_allreduce", "recursive_doubling_allreduce", "synth_greedy")


@pytest.mark.parametrize(
    ("machine", "nbytes", "chosen", "protocol"),
    [
        ("npu_mesh_4x4", 1 << 20, "synth_greedy", None),
        ("npu_mesh_4x4", 1 << 18, "synth_greedy", None),
        ("npu_mesh_4x4", 1 << 14, "recursive_doubling_allreduce", None),
        ("npu_ring_8", 1 << 20, "ring_allreduce", None),
        ("dgx_h100", 64, "recursive_doubling_allreduce", "ll"),
        ("dgx_h100", 1 << 14, "recursive_doubling_allreduce", "ll"),
    ],
)
def test_it_chooses_by_size_and_network(machine: str, nbytes: int, chosen: str, protocol: str | None) -> None:
    prior, emulator = of("prior"), Emulator.load(machine)
    prior.init(Comm(emulator.world_size, emulator=emulator))
    found = prior.get_coll_info(
        Call("all_reduce", nbytes, emulator.world_size), CostTable(NAMES, [UNKNOWN] * len(NAMES))
    )
    assert found is not None and not isinstance(found, str)
    assert (found.name, found.protocol) == (chosen, protocol)


def test_what_may_not_run_is_not_chosen_and_thresholds_are_options() -> None:
    prior, emulator = of({"kind": "prior", "large": 1 << 30}), Emulator.load("npu_mesh_4x4")
    prior.init(Comm(16, emulator=emulator))
    table = CostTable(NAMES, [UNKNOWN] * 3)
    table.mask("ring_allreduce", "masked")
    found = prior.get_coll_info(Call("all_reduce", 1 << 24, 16), table)
    assert getattr(found, "name", None) == "recursive_doubling_allreduce"
    assert prior.get_coll_info(Call("scatter", 1 << 20, 16), table) is None
    with pytest.raises(ConfigError, match=r"AHBM-C181.*has no big"):
        of({"kind": "prior", "big": 1})


def test_it_is_a_selector_of_a_run() -> None:
    report = ahbm.run("all_reduce", topology="npu_ring_8", bytes_per_rank=4096, selector="prior")
    assert report.algorithm == "recursive_doubling_allreduce" and report.wrong == 0


def test_the_oracle_agrees_on_a_mesh_beyond_256_kib() -> None:
    catalogue = Catalogue.of("all_reduce", ["ring_allreduce", "bidirectional_ring_allreduce", "synth:greedy"])
    live = Live(catalogue, "npu_mesh_4x4")
    from ahbm.choose.outcomes import request_of

    best = live.of("npu_mesh_4x4", request_of("all_reduce", 1 << 22, 16, "f16"))
    assert catalogue[best.best].name == "synth_greedy" and isinstance(Prior().name, str)
