"""NCCL_ALGO and NCCL_PROTO, by the rules of `parseList` in NCCL's src/graph/tuning.cc; and what other files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.base import foreign
from ahbm.choose.evaluation import evaluate
from ahbm.choose.formats import read
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError, FormatError

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def file(folder: Path, text: str, name: str = "job.env") -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("NCCL_ALGO=Ring", dict.fromkeys(COLLECTIVES, ("ring", None))),
        ("export NCCL_ALGO='RING'\nexport NCCL_PROTO=ll128", dict.fromkeys(COLLECTIVES, ("ring", "ll128"))),
        # Of rings and trees, other collectives than all_reduce have rings alone.
        ("NCCL_ALGO=ring,Tree", dict.fromkeys(COLLECTIVES[1:], ("ring", None))),
        ("NCCL_ALGO=allreduce:tree", {"all_reduce": ("tree", None), **dict.fromkeys(COLLECTIVES[3:], ("ring", None))}),
        (
            "NCCL_ALGO=ring;AllReduce:nvls;sendrecv:ring\nNCCL_PROTO=^LL,ll128",
            {"all_reduce": ("nvls", "simple"), **dict.fromkeys(COLLECTIVES[1:], ("ring", "simple"))},
        ),
        ("NCCL_ALGO=^tree,CollNetDirect,CollNetChain,NVLS,NVLSTree,PAT", dict.fromkeys(COLLECTIVES, ("ring", None))),
        ("NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME==ens1", {}),
    ],
)
def test_one_algorithm_that_is_left_is_a_rule(tmp_path: Path, text: str, rules: dict[str, tuple[str, str]]) -> None:
    found = read(file(tmp_path, text))
    assert {rule.collective: (rule.algorithm, rule.protocol) for rule in found.rules} == rules
    assert not found.findings
    assert bool(found.notes) is (set(rules) != set(COLLECTIVES))


def test_collectives_that_are_left_without_an_algorithm_are_named(tmp_path: Path) -> None:
    found = read(file(tmp_path, "NCCL_ALGO=Tree\nNCCL_MIN_NCHANNELS=8\nNCCL_MAX_NCHANNELS=8\nRCCL_MSCCL_ENABLE=1"))
    assert [(rule.collective, rule.channels) for rule in found.rules] == [("all_reduce", 8)]
    (finding,) = found.findings
    assert finding.code == "AHBM-F200" and "allgather, reducescatter, broadcast, reduce no algorithm" in finding.message
    assert any("RCCL_MSCCL_ENABLE" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("NCCL_ALGO=Ring, Tree", "' Tree' is unknown"),
        ("NCCL_ALGO=rign", "did you mean ring"),
        ("NCCL_ALGO=nvls_tree", "'nvls_tree' is unknown"),
        ("NCCL_ALGO=^ring,^tree", "'^tree' is unknown"),
        ("NCCL_ALGO=allreduce:ring;tree", "only the first list may be for all"),
        ("NCCL_PROTO=*:ll", "'*' is no collective"),
        ("NCCL_ALGO=ring\nNCCL_ALGO=tree", "a second line"),
    ],
)
def test_lists_that_nccl_refuses(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(FormatError, match="AHBM-F190") as caught:
        read(file(tmp_path, text))
    assert what in str(caught.value)


def test_quotes_are_part_of_a_value_in_nccl_conf(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="AHBM-F190"):
        read(file(tmp_path, 'NCCL_ALGO="Ring"\n', "nccl.conf"))


def test_a_file_that_chooses_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"AHBM-C146 .* has no rule") as caught:
        evaluate(file(tmp_path, "NCCL_DEBUG=INFO\n"), [load_machine("npu_ring_8")], (1024,))
    assert "NCCL's model chooses" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("allreduce,0,64K,tree,ll,4,1,8\n", "max_bytes is '64K'"),
        ("allreduce,0,1e6,tree,ll,4,1,8\n", "max_bytes is '1e6'"),
        ("allreduce,0,65536,tree,ll,4,1\n", "a line of 7 fields"),
    ],
)
def test_a_line_that_is_wrong_is_named_not_its_format(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(FormatError, match="AHBM-F190") as caught:
        read(file(tmp_path, text, "nccl_tuner.conf"))
    assert what in str(caught.value)


def test_a_comment_behind_the_last_number_is_none_of_it(tmp_path: Path) -> None:
    (rule,) = read(file(tmp_path, "allreduce,0,65536,tree,ll,4,1,8,-1,1 # small\n", "nccl_tuner.conf")).rules
    assert rule.registered is True


def test_types_of_memory_count_where_there_are_rules(tmp_path: Path) -> None:
    text = "UCC_TL_UCP_TUNE=allreduce:cuda:inf#allreduce:host:0-1M:10:@knomial#bcast:rocm:0\n"
    assert [rule.algorithm for rule in read(file(tmp_path, text, "ucc.conf")).rules] == ["knomial"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("NCCL_ALGO=Ring\n", "variables of NCCL"),
        ("export RCCL_MSCCL_ENABLE=1\n", "variables of RCCL"),
        ("MSCCLPP_DEBUG=INFO\n", "variables of MSCCL++"),
        ("1 # num of collectives\n3 # ID = 3\n", "Open MPI"),
    ],
)
def test_what_a_file_of_settings_is(text: str, what: str) -> None:
    found = foreign.of_text(text)
    assert found is not None and what in found.what
