"""A catalogue: entries of every kind under the digest of what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.oracle import Oracle
from ahbm.errors import AhbmError, ConfigError
from ahbm.source.synthesis import METHODS


def kernel(t_ptr: int, n_elem: int, rank: int, kind: int, w: int, h: int, *, tl: Any) -> None:
    """Nothing."""


kernel.kernel_args = lambda world_size, n_elem, *, cube_w=4, cube_h=4: (n_elem,)  # type: ignore[attr-defined]


def copied(folder: Path, name: str, comment: str) -> str:
    source = Path(ahbm.__file__).parent / "data/algorithms/ring_allreduce.py"
    path = folder / name
    path.write_text(f"{source.read_text(encoding='utf-8')}\n# {comment}\n", encoding="utf-8")
    return str(path)


def plan(folder: Path, name: str = "ring.xml", **sizes: int) -> str:
    made = ahbm.synthesize("all_reduce", topology="npu_ring_8", size=1 << 16, method="ring").even()
    made.plan.save(folder / name, nbytes=made.nbytes, **sizes)
    return str(folder / name)


def test_all_are_those_of_ccl_yaml_and_a_schedule_of_every_method() -> None:
    names = [entry.name for entry in Catalogue.of("all_gather")]
    kernels = ["nccl_ring_all_gather", "nvls_all_gather", "pat_all_gather", "ring_all_gather"]
    assert names == [*kernels, *(f"synth_{method}" for method in METHODS[1:])]
    assert [entry.name for entry in Catalogue.of("barrier")] == ["dissemination_barrier"]


def test_every_form_of_an_algorithm_is_an_entry_and_runs(here: Path) -> None:
    forms = ["ring_allreduce", "synth:trees", plan(here), copied(here, "own.py", ""), "tree_allreduce"]
    found = Catalogue.of("all_reduce", forms)
    assert [entry.ranks for entry in found] == [None, None, 8, None, None]
    assert len({entry.id for entry in found}) == len(forms) == len({entry.name for entry in found})
    table = Oracle(found, "npu_ring_8", [1 << 16]).table()
    assert list(table.times("npu_ring_8", 1 << 16)) == [entry.name for entry in found]


def test_a_function_is_an_entry() -> None:
    (entry,) = Catalogue.of("all_reduce", [kernel])
    assert entry.name == "kernel" and entry.given is not None and "test_catalogue.py" in entry.source


def test_equal_contents_are_equal_ids(here: Path) -> None:
    def ids(*forms: str, **given: Any) -> list[str]:
        return [entry.id for entry in Catalogue.of("all_reduce", list(forms), **given)]

    one, other = copied(here, "one.py", "a"), copied(here, "other.py", "b")
    assert ids(one) == ids(one) != ids(other)
    before = ids(one)
    copied(here, "one.py", "changed")
    assert ids(one) != before
    assert ids("ring_allreduce") != ids("ring_allreduce", overrides={"defaults.n_slots": 2})
    assert ids("synth:ring") != ids("synth:trees")


def test_a_plan_says_its_sizes_and_knobs(here: Path) -> None:
    (entry,) = Catalogue.of("all_reduce", [plan(here, min_bytes=4096, max_bytes=1 << 20)])
    assert (entry.min_bytes, entry.max_bytes) == (4096, 1 << 20)
    assert entry.knobs["channels"] == 1
    (entry,) = Catalogue.of("all_reduce", [plan(here, "open.xml")])
    assert (entry.min_bytes, entry.max_bytes) == (0, None)


def test_a_plan_for_other_ranks_is_refused_with_its_reason(here: Path) -> None:
    table = Oracle(Catalogue.of("all_reduce", ["ring_allreduce", plan(here)]), "npu_torus_4x4", [4096]).table()
    assert [row["code"] for row in table] == [None, "AHBM-C117"]
    assert table[1]["ranks"] == 16 and "8 ranks, not 16" in table[1]["message"]


def test_catalogues_add_up() -> None:
    both = Catalogue.of("all_reduce", ["ring_allreduce"]) + Catalogue.of("all_gather", ["synth:ring"])
    assert [entry.collective for entry in both] == ["all_reduce", "all_gather"]
    assert both.of_collective("all_gather")[0].name == "synth_ring" == both.entry("synth_ring").name
    assert both.entry(both[0].id) is both[0]
    assert both.id != Catalogue(both[:1], both.ccl, both.overrides).id


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (("all_reduce", ["ring_all_gather"]), "AHBM-C115"),
        (("all_reduces",), "AHBM-C105"),
        (("all_reduce", ["ring_allreduce", "ring_allreduce"]), "AHBM-C129"),
        (("all_reduce", [None]), "AHBM-C129"),
        (("all_reduce", 7), "AHBM-C129"),
        (("all_reduce", ["./missing.py"]), "AHBM-C110"),
    ],
)
def test_what_is_no_catalogue_is_refused(given: tuple[Any, ...], code: str) -> None:
    with pytest.raises(AhbmError) as told:
        Catalogue.of(*given)
    assert told.value.code == code


def test_overrides_of_machines_and_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"none of ccl\.yaml"):
        Catalogue.of("all_reduce", overrides={"system.sips.count": 4})
    with pytest.raises(ConfigError, match="no algorithm 'rings'"):
        Catalogue.of("all_reduce", ["ring_allreduce"]).entry("rings")
    with pytest.raises(ConfigError, match="no algorithm for"):
        Oracle(Catalogue.of("all_gather"), "npu_ring_8", [1024])
