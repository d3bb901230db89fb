"""UCC's tune strings and its ucc.conf, read as UCC reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.base.rules import Query
from ahbm.choose.evaluation import evaluate
from ahbm.choose.formats import read
from ahbm.choose.formats.format import Read
from ahbm.choose.names import UCC
from ahbm.choose.tune import candidates
from ahbm.config.topology import load_machine
from ahbm.errors import BudgetError, FormatError

CONF = """\
# Layers of teams.
UCC_CL_BASIC_TLS=^sharp,nccl
; Tuned by hand.

[vendor=intel model=skylake team_size=8 ppn=8 nnodes=1]
UCC_TL_UCP_ALLREDUCE_KN_RADIX=0-8k:host:8,8k-inf:host:2
UCC_TL_UCP_TUNE=allreduce:0-4k:@0#allreduce:4k-inf:@1

[team_size=2-4 ppn=1]
UCC_TL_UCP_TUNE=allreduce:@2

[vendor=amd model=rome team_size=8 ppn=8 nnodes=1]
UCC_TL_UCP_TUNE=allreduce:@3
"""
NUMBERS = {
    "allreduce": ("knomial", "sra_knomial", "dbt", "sliding_window", "ring"),
    "allgather": ("knomial", "ring", "neighbor", "bruck", "sparbit"),
    "bcast": ("knomial", "sag_knomial", "dbt"),
    "reduce": ("knomial", "dbt", "srg"),
    "reduce_scatter": ("ring", "knomial"),
    "alltoall": ("pairwise", "bruck", "onesided"),
}
"""The enumerations of openucx/ucc, src/components/tl/ucp/COLLECTIVE/COLLECTIVE.h."""


def of(text: str, folder: Path) -> Read:
    file = folder / "ucc.conf"
    file.write_text(text)
    return read(file)


def string(value: str, folder: Path) -> Read:
    return of(f"UCC_TL_UCP_TUNE={value}\n", folder)


def chosen(found: Read, size: int, ranks: int, nodes: int = 1) -> str | None:
    rule = found.rules.choose(Query("all_reduce", size, ranks, nodes))
    return None if rule is None else rule.algorithm


@pytest.mark.parametrize("collective", NUMBERS)
def test_a_number_is_an_algorithm_in_ucc_s_order(collective: str, tmp_path: Path) -> None:
    names = NUMBERS[collective]
    assert set(UCC.collectives.values()) == set(NUMBERS)
    for number, name in enumerate(names):
        by_number, by_name = (string(f"{collective}:@{one}", tmp_path).rules for one in (number, name))
        assert by_number == by_name and [rule.algorithm for rule in by_number] == [name]
    with pytest.raises(FormatError, match=rf"'{len(names)}' is no algorithm of {collective}(.|\n)*0 {names[0]}, 1 "):
        string(f"{collective}:@{len(names)}", tmp_path)


def test_the_evaluation_names_what_a_number_is(tmp_path: Path) -> None:
    file = tmp_path / "ucc.conf"
    file.write_text("UCC_TL_UCP_TUNE=allreduce:0-4k:@0#allreduce:4k-inf:@4#alltoall:0\n")
    names = ["recursive_doubling_allreduce", "ring_allreduce"]
    lines = list(evaluate(file, [load_machine("npu_ring_8")], [1 << 10, 1 << 16], algorithms=names).lines())
    assert "knomial of UCC is recursive_doubling_allreduce here" in lines
    assert "ring of UCC is ring_allreduce here" in lines
    assert "no rule of tl/ucp, score 0: alltoall:0" in lines


def test_an_algorithm_of_newer_versions_is_read_and_not_written() -> None:
    assert UCC.ours("all_reduce", "ring", ["ring_allreduce"]) == "ring_allreduce"
    assert "ring" not in candidates(UCC, "all_reduce", {"ring_allreduce": 1})
    assert "ring" in candidates(UCC, "all_gather", {"ring_allgather": 1})


def test_a_ucc_conf_with_sections_is_read(tmp_path: Path) -> None:
    found = of(CONF, tmp_path)
    assert (found.format, found.findings) == ("ucc", ())
    assert [chosen(found, size, 8) for size in (1024, 4096, 1 << 20)] == ["knomial", "sra_knomial", "sra_knomial"]
    assert [chosen(found, 64, ranks, ranks) for ranks in (1, 2, 3, 4, 5, 8)] == [None, "dbt", "dbt", "dbt", None, None]
    assert chosen(found, 64, 4, 1) is None
    told = "\n".join(found.notes)
    for text in ("taken to fit", "vendor=amd model=rome", "UCC_CL_BASIC_TLS, UCC_TL_UCP_ALLREDUCE_KN_RADIX"):
        assert text in told


def test_the_string_above_all_sections_holds(tmp_path: Path) -> None:
    found = of(f"UCC_TL_UCP_TUNE=@knomial:allreduce\n{CONF}", tmp_path)
    assert {chosen(found, size, ranks) for size in (1, 1 << 20) for ranks in (2, 8, 64)} == {"knomial"}
    assert any("2 sections" in note or "3 sections" in note for note in found.notes)


@pytest.mark.parametrize(
    ("value", "rules", "told"),
    [
        ("inf", 0, "a score alone"),
        ("allreduce:0-4K:20", 0, "a score alone"),
        ("allreduce:0-4K:0:@knomial", 0, "score 0"),
        ("allreduce:20#allgather:@ring", 1, "a score alone"),
        ("alltoallv,barrier:@0#allreduce:@0", 1, "alltoallv, barrier"),
        ("ALLREDUCE:0-4KB:CUDA:INF:@SRA_Knomial", 1, None),
        ("allreduce:[8]:@0", 1, None),
        ("allreduce:[2-4,8,16-inf]:0-4k,1m-2m:@0", 6, None),
    ],
)
def test_what_ucc_s_grammar_allows(value: str, rules: int, told: str | None, tmp_path: Path) -> None:
    found = string(value, tmp_path)
    assert len(found.rules) == rules and not found.findings
    assert [told] * bool(told) == [told for note in found.notes if told and told in note]


@pytest.mark.parametrize(
    "text",
    [
        "UCC_TL_UCP_TUNE=allreduce:@rings",
        "UCC_TL_UCP_TUNE=allreduce:0-4k",
        "UCC_TL_UCP_TUNE=allreduce:[2-8:@0",
        "UCC_TL_UCP_TUNE=allreduce:[2-8,]:@0",
        "[team_size=8 cores=4]\nUCC_TL_UCP_TUNE=allreduce:@0",
        "[team_size=many]\nUCC_TL_UCP_TUNE=allreduce:@0",
        "[]\nUCC_TL_UCP_TUNE=allreduce:@0\nUCC_TL_UCP_TUNE=allreduce:@1",
        "UCC_CL_BASIC_TLS=ucp",
        "UCC_TL_UCP_TUNE=allreduce:@0\nallreduce",
    ],
)
def test_what_is_none_of_it_is_an_error_with_file_and_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"AHBM-F190(.|\n)*ucc\.conf:[0-9]"):
        of(text, tmp_path)


def test_ranges_and_teams_that_multiply_are_too_many_rules(tmp_path: Path) -> None:
    many = ",".join(f"{at}-{at + 1}" for at in range(20_000))
    with pytest.raises(BudgetError, match="AHBM-B214"):
        string(f"allreduce:{many}:[{many}]:@0", tmp_path)


@pytest.mark.parametrize("value", ["allreduce:0-4k:@ring#", "#allreduce:0-4k:@ring", "allreduce::0-4k:@ring##"])
def test_empty_parts_of_a_string_are_skipped(value: str, tmp_path: Path) -> None:
    """As `ucc_str_split` of src/utils/ucc_string.c does."""
    (rule,) = string(value, tmp_path).rules
    assert (rule.algorithm, rule.nbytes.least, rule.nbytes.most) == ("ring", 0, 4096)
