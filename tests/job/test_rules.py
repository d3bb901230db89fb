"""The algorithm of a job's call, by the rules of ccl.yaml: by group, node, ranks and size."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ahbm
from ahbm.config.ccl import CclConfig
from ahbm.config.rules import Place
from ahbm.errors import ConfigError
from ahbm.job.replay import JobReport
from support.traces import attribute, write

RING, TREE, DOUBLING = "ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce"


def job(folder: Path) -> str:
    """Four ranks: two pairs reduce activations and gradients, then all of them a loss."""
    for rank in range(4):
        pair = rank % 2
        nodes: list[dict[str, Any]] = []
        for number, (name, size) in enumerate([("activations", 1 << 16), ("gradients", 1 << 10), ("loss", 64)]):
            facts = [attribute("comm_type", 0), attribute("comm_size", size), attribute("dtype", "f16")]
            facts += [attribute("op", "sum"), attribute("pg_name", f"tp{pair}" if number < 2 else "")]
            ranks = [pair, pair + 2] if number < 2 else [0, 1, 2, 3]
            facts.append({"name": "ranks", "int64List": {"values": ranks}})
            deps = [number - 1] if number else []
            nodes.append({"id": number, "name": name, "type": "COMM_COLL_NODE", "ctrlDeps": deps, "attr": facts})
        write(folder / "step", rank, nodes)
    return f"{folder}/step.0.json"


def replayed(folder: Path, rules: str, **terms: Any) -> JobReport:
    ccl = folder / "ccl.yaml"
    ccl.write_text(f"collectives:\n  all_reduce: {rules}\n")
    overrides = {"system.sips.count": 4}
    report = ahbm.open(job(folder), topology="npu_ring_8", overrides=overrides, ccl=ccl, **terms).run()
    assert isinstance(report, JobReport)
    return report


def chosen(report: JobReport) -> dict[tuple[str, int], str]:
    """The algorithm by group and bytes."""
    return {(call.group, call.bytes): call.algorithm for call in report.calls}


PLAIN = "lrab_hierarchical_allreduce"


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ("[{group: 'tp*', algorithm: ring_allreduce}]", [RING, RING, RING, RING, PLAIN]),
        ("[{group: tp1, algorithm: ring_allreduce}]", [PLAIN, PLAIN, RING, RING, PLAIN]),
        ("[{group: '', algorithm: ring_allreduce}]", [PLAIN, PLAIN, PLAIN, PLAIN, RING]),
        ("[{node: 'grad*', algorithm: ring_allreduce}]", [PLAIN, RING, PLAIN, RING, PLAIN]),
        ("[{node: '*', ranks: 4, algorithm: ring_allreduce}]", [PLAIN, PLAIN, PLAIN, PLAIN, RING]),
        ("[{group: '*', max_bytes: 2048, algorithm: ring_allreduce}]", [PLAIN, RING, PLAIN, RING, RING]),
        (
            "[{group: tp0, node: 'grad*', algorithm: ring_allreduce}, {group: 'tp*', algorithm: tree_allreduce}]",
            [TREE, RING, TREE, TREE, PLAIN],
        ),
        (
            "[{group: tp0, algorithm: ring_allreduce}, {ranks: 4, algorithm: tree_allreduce}, "
            "{algorithm: recursive_doubling_allreduce}]",
            [RING, RING, DOUBLING, DOUBLING, TREE],
        ),
    ],
)
def test_rules(rules: str, wanted: list[str], tmp_path: Path) -> None:
    report = replayed(tmp_path, rules)
    calls = [("tp0", 1 << 16), ("tp0", 1 << 10), ("tp1", 1 << 16), ("tp1", 1 << 10), ("", 64)]
    assert chosen(report) == dict(zip(calls, wanted, strict=True))
    fallen = "{algorithm" not in rules and "{ranks" not in rules
    for call in report.calls:
        assert call.rule == ("default" if fallen and call.algorithm == PLAIN else "ccl.yaml")
    assert not report.warnings


def test_a_selector_for_some_groups(tmp_path: Path) -> None:
    steps = "[{collective: all_reduce, max_bytes: 1024, algorithm: tree_allreduce}, "
    steps += "{collective: all_reduce, algorithm: ring_allreduce}]"
    selector = f"{{kind: ranges, rules: {steps}}}"
    lines = [f"{{group: 'tp*', selector: {selector}}}", "{group: 'dp*', selector: nccl}"]
    report = replayed(tmp_path, "".join(f"\n    - {line}" for line in lines))
    calls = [("tp0", 1 << 16), ("tp0", 1 << 10), ("tp1", 1 << 16), ("tp1", 1 << 10), ("", 64)]
    assert chosen(report) == dict(zip(calls, [RING, TREE, RING, TREE, PLAIN], strict=True))
    assert {call.rule for call in report.calls if call.group} == {"selector"}
    (warning,) = report.warnings
    assert warning.code == "AHBM-C158" and "dp*" in warning.sites[0].label


def test_a_rule_changes_the_times(tmp_path: Path) -> None:
    plain, ruled = (replayed(tmp_path, f"[{{group: '{group}', algorithm: {TREE}}}]") for group in ("none", "tp*"))
    assert plain.times_hash != ruled.times_hash


def test_a_rule_that_no_call_meets_is_said(tmp_path: Path) -> None:
    report = replayed(
        tmp_path,
        "\n    - {group: 'tp*', algorithm: ring_allreduce}\n    - {node: 'router*', algorithm: tree_allreduce}",
    )
    (warning,) = report.warnings
    assert warning.code == "AHBM-C158" and "router*" in warning.sites[0].label
    assert warning.sites[0].origin == f"{tmp_path}/ccl.yaml:4"
    # What is asked for on the command line is above all rules: none of them is idle by mistake.
    assert not replayed(tmp_path, "[{node: 'router*', algorithm: tree_allreduce}]", algorithm=RING).warnings
    # Without a job there is no call that a rule of jobs could be for.
    ccl = tmp_path / "ccl.yaml"
    assert ahbm.run("all_reduce", topology="npu_ring_8", ccl=ccl, bytes_per_rank=64).algorithm == PLAIN


def test_a_rule_may_name_a_plan(tmp_path: Path) -> None:
    """A graph of messages as a call's algorithm."""
    ahbm.convert(RING, tmp_path / "ring.et", overrides={"system.sips.count": 2}, topology="npu_ring_8", nbytes=1 << 10)
    (tmp_path / "more").mkdir()
    path = job(tmp_path / "more")
    ccl = tmp_path / "ccl.yaml"
    rules = "[{group: 'tp*', algorithm: graph}]"
    ccl.write_text(f"algorithms:\n  graph: {{plan: ring.et}}\ncollectives:\n  all_reduce: {rules}\n")
    report = ahbm.open(path, topology="npu_ring_8", overrides={"system.sips.count": 4}, ccl=ccl).run()
    assert isinstance(report, JobReport)
    assert {call.algorithm for call in report.calls if call.group.startswith("tp")} == {"graph"}


@pytest.mark.parametrize(
    "rules",
    [
        "[{group: 3, algorithm: ring_allreduce}]",
        "[{groups: 'tp*', algorithm: ring_allreduce}]",
        "[{node: [a], algorithm: ring_allreduce}]",
        # The second is never reached.
        "[{group: tp0, algorithm: ring_allreduce}, {group: tp0, ranks: 2, algorithm: tree_allreduce}]",
        "[{max_bytes: 64, algorithm: ring_allreduce}, {group: tp0, max_bytes: 8, algorithm: tree_allreduce}]",
        "[{algorithm: ring_allreduce}, {node: a, algorithm: tree_allreduce}]",
    ],
)
def test_rules_that_are_none(rules: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        replayed(tmp_path, rules)
    assert error.value.code in ("AHBM-C103", "AHBM-C108") and "ccl.yaml:2" in str(error.value)


RULE = st.fixed_dictionaries(
    {"algorithm": st.sampled_from([RING, TREE, DOUBLING])},
    optional={
        "ranks": st.integers(1, 3),
        "max_bytes": st.integers(0, 3),
        "group": st.sampled_from(["", "a*", "ab", "*"]),
        "node": st.sampled_from(["x?", "x1", "*"]),
    },
)


@given(st.lists(RULE, min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 4), st.sampled_from(["", "ab", "c"]))
def test_the_first_rule_that_fits(rules: list[dict[str, Any]], ranks: int, nbytes: int, group: str) -> None:
    """Against a reading of the rules one by one."""
    try:
        config = CclConfig.load(overrides={"collectives.all_reduce": rules})
    except ConfigError:
        return
    place = Place(group, "x1")
    wanted = config.defaults[0]
    for rule in rules:
        good = rule.get("ranks", ranks) == ranks and nbytes <= rule.get("max_bytes", nbytes)
        if good and fnmatchcase(group, rule.get("group", "*")) and fnmatchcase("x1", rule.get("node", "*")):
            wanted = rule["algorithm"]
            break
    else:
        if any("group" not in rule and "node" not in rule for rule in rules):
            return  # no rule fits: an error, as for any list
    found = config.placed("all_reduce", nbytes, ranks, place)
    assert (found[1] if found else config.candidates("all_reduce", nbytes, ranks)[0]) == wanted
