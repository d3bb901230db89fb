"""ccl.yaml: lookup, layers, overrides, and findings with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ahbm.config.ccl import CclConfig, split_overrides
from ahbm.config.scaffold import new_algorithm
from ahbm.config.settings import Queues
from ahbm.config.topology import NETWORKS, load_machine, resized
from ahbm.errors import ConfigError, TopologyError, UnsupportedError

pytestmark = pytest.mark.usefixtures("here")


def write(text: str, name: str = "ccl.yaml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def test_packaged_defaults() -> None:
    config = CclConfig.load()
    settings = config.settings(config.candidates("all_reduce", 1024, 2)[0])
    assert settings.algorithm == "lrab_hierarchical_allreduce"
    assert settings.queues == Queues("auto", 4, None, 16) and settings.world_size is None
    assert config.candidates("all_gather", 1, 2) == ("ring_all_gather",)


def test_own_file_is_laid_over_the_packaged_one() -> None:
    write(
        "defaults: {n_slots: 8}\nalgorithms:\n  mine: {module: ./mine.py, slot_size: 64, world_size: 3}\n"
        "collectives:\n  all_reduce:\n    - {max_bytes: 100, algorithm: mine}\n    - algorithm: ring_allreduce\n"
    )
    config = CclConfig.load()
    mine = config.settings(config.candidates("all_reduce", 100, 2)[0])
    assert (mine.algorithm, mine.queues.n_slots, mine.queues.slot_size, mine.world_size) == ("mine", 8, 64, 3)
    assert config.candidates("all_reduce", 101, 2) == ("ring_allreduce",)
    assert config.settings("ring_allreduce").queues.n_slots == 8


def test_lookup_order(monkeypatch: pytest.MonkeyPatch) -> None:
    write("defaults: {n_slots: 5}")
    write("defaults: {n_slots: 6}", "env.yaml")
    write("defaults: {n_slots: 7}", "given.yaml")
    assert CclConfig.load().settings("x").queues.n_slots == 5
    monkeypatch.setenv("AHBM_CCL", "env.yaml")
    assert CclConfig.load().settings("x").queues.n_slots == 6
    assert CclConfig.load("given.yaml").settings("x").queues.n_slots == 7
    with pytest.raises(ConfigError, match="AHBM-C101"):
        CclConfig.load("absent.yaml")


def test_overrides() -> None:
    config = CclConfig.load(
        None,
        {
            "n_slots": 9,
            "algorithms.ring_allreduce.buffer_kind": "hbm",
            "defaults.slot_size": "4096",
            "collectives.all_reduce": "tree_allreduce",
        },
    )
    assert config.settings("tree_allreduce").queues.n_slots == 9
    assert config.settings("ring_allreduce").queues.buffer_kind == "hbm"
    assert config.settings("tree_allreduce").queues.buffer_kind == "auto"
    assert config.settings("tree_allreduce").queues.slot_size == 4096
    assert config.candidates("all_reduce", 0, 2) == ("tree_allreduce",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("defaults:\n  n_slot: 3\n", ["ccl.yaml:2", "defaults.n_slot", "did you mean n_slots"]),
        ("defaults:\n  n_slots: many\n", ["ccl.yaml:2", "an integer", "'many'"]),
        ("defaults:\n  n_slots: true\n", ["ccl.yaml:2", "an integer"]),
        ("default:\n  n_slots: 3\n", ["ccl.yaml:1", "did you mean defaults"]),
        ("algorithms:\n  a:\n    modul: b\n", ["ccl.yaml:3", "did you mean module"]),
        ("algorithms:\n  a: {n_slots: 3}\n", ["ccl.yaml:2", "algorithms.a has no module"]),
        ("algorithms:\n  a: b\n", ["ccl.yaml:2", "a mapping"]),
        ("collectives:\n  allreduce: a\n", ["ccl.yaml:2", "did you mean all_reduce"]),
        ("collectives:\n  all_reduce: ring_alreduce\n", ["ccl.yaml:2", "did you mean ring_allreduce"]),
        (
            "collectives:\n  all_reduce:\n  - algorithm: ring_allreduce\n  - algorithm: tree_allreduce\n",
            ["ccl.yaml:4", "before the range"],
        ),
        ("defaults: [1\n", ["ccl.yaml:2", "no valid YAML"]),
        ("defaults:\n  n_slots: 1\n  n_slots: 2\n", ["ccl.yaml:2", "ccl.yaml:3", "twice"]),
        ("1: 2\n", ["ccl.yaml:1", "no text"]),
        ("- 1\n", ["ccl.yaml:1", "no mapping"]),
    ],
)
def test_findings_name_file_line_and_remedy(text: str, words: list[str]) -> None:
    write(text)
    with pytest.raises(ConfigError) as caught:
        CclConfig.load()
    for word in words:
        assert word in str(caught.value)


def test_polling_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="poll"):
        CclConfig.load(None, {"backpressure": "poll"}).settings("x")


def test_split_overrides() -> None:
    topology, ccl = split_overrides(
        {"system.sips.count": 4, "ipcq.tiers.tcm.bandwidth_gbs": 1, "n_slots": 8, "algorithms.a.module": "b"}
    )
    assert list(topology) == ["system.sips.count", "ipcq.tiers.tcm.bandwidth_gbs"]
    assert list(ccl) == ["n_slots", "algorithms.a.module"]
    with pytest.raises(ConfigError, match="did you mean system"):
        split_overrides({"sytem.sips.count": 4})


def test_machines_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    default = load_machine()
    assert (default.sips, default.cubes, default.pes) == (2, 16, 8)
    torus = load_machine("torus_2d", {"system.sips.count": 6, "system.sips.w": 3, "system.sips.h": 2})
    assert (torus.topology, torus.sips, torus.sip_w, torus.sip_h) == ("torus_2d", 6, 3, 2)
    assert load_machine(torus) is torus
    with pytest.raises(Exception, match="AHBM-T101"):
        load_machine("nowhere")
    with pytest.raises(Exception, match="AHBM-T102"):
        load_machine("nowhere.yaml")
    with pytest.raises(Exception, match="AHBM-T103"):
        load_machine(torus, {"system.sips.count": 6})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<root/>", "is XML"),
        ('{"traceEvents": []}', "a trace of PyTorch's profiler"),
        ("[0] # nThread 1 nGpus 8 minBytes 1024\n", "a log of nccl-tests"),
    ],
)
def test_files_of_other_tools_are_named(text: str, what: str, here: Path) -> None:
    (here / "machine.txt").write_text(text)
    for name in ("machine.txt", "./machine.txt"):
        with pytest.raises(TopologyError, match="AHBM-T102") as caught:
            load_machine(name)
        assert what in str(caught.value) and "machine.txt:1" in str(caught.value)


def test_scaffold_keeps_comments_and_refuses_to_overwrite(here: Path) -> None:
    write("# mine\nalgorithms:   # here\n    other: {module: ./other.py}  # keep\ndefaults: {n_slots: 2}\n")
    paths = new_algorithm("fresh", here)
    # Directions keep the formula of the rank, so that one call stands for all ranks.
    assert "tl.peer(sip=" in paths[0].read_text() and 'f"sip' not in paths[0].read_text()
    text = (here / "ccl.yaml").read_text()
    assert text.splitlines()[:4] == [
        "# mine",
        "algorithms:   # here",
        "    fresh: {module: ./algorithms/fresh.py}",
        "    other: {module: ./other.py}  # keep",
    ]
    assert all(path.exists() for path in paths)
    with pytest.raises(ConfigError, match="AHBM-C131"):
        new_algorithm("fresh", here)
    with pytest.raises(ConfigError, match="AHBM-C130"):
        new_algorithm("not a name", here)
    new_algorithm("second", here)
    assert CclConfig.load().settings("second").options == "./algorithms/second.py"


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "custom"])
@pytest.mark.parametrize("sips", [2, 4, 8, 16, 64])
def test_a_network_of_any_kind_is_resized(network: str, sips: int) -> None:
    machine = load_machine(network, resized(load_machine(network, {"system.sips.count": 64}).topology, sips))
    assert machine.topology == network
    assert machine.sips == sips
    if network.endswith("2d") and round(sips**0.5) ** 2 == sips:
        assert machine.sip_w == round(sips**0.5)


def bomb() -> str:
    levels = ["l0: &l0 [a, a, a, a, a, a, a, a, a, a]"]
    levels += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 8)]
    return "\n".join(levels)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (bomb(), "aliases written out"),
        ("defaults: " + "[" * 100_000, "nested too deeply"),
        ("a: " * 100_000, "no valid YAML"),
        ("defaults: {n_slots: " + "9" * 5_000 + "}", "no value"),
        ("defaults: {n_slots: 1208925819614629174706176}", "at most 4294967295"),
        ("defaults: {op_budget: 1208925819614629174706176}", "at most"),
        ("defaults: {n_slots: 1}\x00", "no valid YAML"),
        ("a: 2001-99-99", "no value"),
        ("a: &a [*a]", "nested too deeply"),
        ("? [a]\n: b", "no text"),
    ],
    ids=lambda value: value[:16],
)
def test_hostile_text_is_refused_by_name_and_at_once(text: str, told: str) -> None:
    write(text)
    with pytest.raises(ConfigError) as caught:
        CclConfig.load()
    assert told in str(caught.value) and caught.value.code in ("AHBM-C102", "AHBM-C103")


@pytest.mark.parametrize(
    "value", ["9" * 5_000, "1208925819614629174706176", "[" * 10_000, "\x00", "", "{", "0x" + "f" * 40]
)
def test_hostile_overrides_are_refused_by_name(value: str) -> None:
    with pytest.raises(ConfigError):
        CclConfig.load(None, {"n_slots": value})


def test_a_range_may_be_for_a_number_of_ranks() -> None:
    write(
        "collectives:\n  all_reduce:\n    - {ranks: 8, max_bytes: 100, algorithm: tree_allreduce}\n"
        "    - {max_bytes: 50, algorithm: recursive_doubling_allreduce}\n    - algorithm: ring_allreduce\n"
    )
    config = CclConfig.load()
    found = [config.candidates("all_reduce", *asked)[0] for asked in ((100, 8), (100, 4), (50, 4), (101, 8))]
    assert found == ["tree_allreduce", "ring_allreduce", "recursive_doubling_allreduce", "ring_allreduce"]
    assert config.described("all_reduce") == (
        "tree_allreduce of 8 ranks up to 100 B, else recursive_doubling_allreduce up to 50 B, else ring_allreduce"
    )


@pytest.mark.parametrize(
    "ranges",
    [
        "[{algorithm: ring_allreduce}, {ranks: 8, algorithm: tree_allreduce}]",
        "[{ranks: 8, max_bytes: 9, algorithm: ring_allreduce}, {ranks: 8, max_bytes: 9, algorithm: tree_allreduce}]",
        "[{max_bytes: 9, algorithm: ring_allreduce}, {ranks: 8, max_bytes: 7, algorithm: tree_allreduce}]",
        "[{ranks: 0, algorithm: ring_allreduce}]",
    ],
)
def test_a_range_that_no_size_reaches_is_refused(ranges: str) -> None:
    write(f"collectives: {{all_reduce: {ranges}}}")
    with pytest.raises(ConfigError, match="AHBM-C103"):
        CclConfig.load()


def test_no_range_for_these_ranks_is_an_error() -> None:
    write("collectives: {all_reduce: [{ranks: 8, algorithm: ring_allreduce}]}")
    with pytest.raises(ConfigError, match=r"AHBM-C106.*among 4 ranks"):
        CclConfig.load().candidates("all_reduce", 1, 4)
