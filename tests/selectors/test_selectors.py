"""The selectors that come with AHBM: what they choose, and what they refuse."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.base.request import Request
from ahbm.base.rules import Rule
from ahbm.core.choice import SELECTOR, Choice
from ahbm.core.emulator import Emulator
from ahbm.errors import ConfigError
from ahbm.selectors.asking import Solo, Tables
from ahbm.selectors.loading import as_selector, of
from ahbm.selectors.nccl_model import NcclModel
from ahbm.selectors.protocol import MASKED, UNKNOWN, BaseSelector, Call, Comm, CostTable, Selector
from ahbm.selectors.ranges import Range, Ranges
from ahbm.selectors.shortlist import Shortlist
from ahbm.selectors.static import Static
from ahbm.selectors.tree import Tree

RING, TREE = "ring_allreduce", "tree_allreduce"


def table(*names: str) -> CostTable:
    return CostTable(names or (RING, TREE), [UNKNOWN] * len(names or (RING, TREE)))


def call(nbytes: int = 1 << 16, ranks: int = 8, nodes: int = 1, collective: str = "all_reduce") -> Call:
    return Call(collective, nbytes, ranks, nodes)


def emulator(machine: str = "npu_ring_8") -> Emulator:
    return Emulator.load(machine)


def request(nbytes: int, collective: str = "all_reduce") -> Any:
    return Request(collective, range(8), nbytes // 2, "f16")


def test_the_best_of_a_table_is_the_smallest_cost_that_is_not_masked_and_the_first_of_equals() -> None:
    costs = CostTable(("a", "b", "c", "d"), [3.0, 1.0, 1.0, MASKED])
    assert costs.best() == "b"
    costs.mask("b", "too slow")
    assert (costs.best(), costs.reasons, costs.allows("b"), costs.cost("e")) == ("c", {"b": "too slow"}, False, MASKED)
    assert table().best() is None


def test_the_selectors_keep_the_protocol() -> None:
    for made in (Static({}), NcclModel(), Ranges([]), Shortlist(), as_selector(lambda a, r: None)):
        assert isinstance(made, Selector)


def test_a_masked_algorithm_is_not_chosen() -> None:
    costs = table()
    costs.mask(RING, "does not know the network")
    assert Static({"all_reduce": RING}).get_coll_info(call(), costs) is None
    ranges = Ranges([Range("all_reduce", RING), Range("all_reduce", TREE)])
    assert ranges.get_coll_info(call(), costs) == Choice(SELECTOR, TREE)
    stump = Tree([], [RING], feature=[-2], threshold=[0], left=[-1], right=[-1], value=[0])
    assert stump.get_coll_info(call(), costs) is None
    assert stump.get_coll_info(call(), table()) == Choice(SELECTOR, RING)


def test_ranges_are_the_first_rule_that_fits_read_naively() -> None:
    draw = random.Random(20)
    border = lambda most: sorted(draw.randrange(most) for _ in range(2))  # noqa: E731
    rules: list[Rule] = []
    bounds: list[tuple[int, int, int, int, bool]] = []
    for _ in range(40):
        (least, most), (few, many) = border(4096), border(16)
        collective = draw.choice(["all_reduce", "all_gather"])
        bounds.append((least, most, few, many, draw.random() < 0.3))
        rules.append(Range(collective, draw.choice([RING, TREE]), *bounds[-1][:4], per_rank=bounds[-1][4]))
    made = Ranges(rules)
    for _ in range(10_000):
        asked = call(draw.randrange(4096), draw.randrange(1, 16), collective=draw.choice(["all_reduce", "all_gather"]))
        fitting = [
            rule
            for rule, (least, most, few, many, per_rank) in zip(rules, bounds, strict=True)
            if rule.collective == asked.collective
            and least <= (asked.nbytes // asked.ranks if per_rank else asked.nbytes) <= most
            and few <= asked.ranks <= many
        ]
        wanted = Choice(SELECTOR, fitting[0].algorithm) if fitting else None
        assert made.get_coll_info(asked, table()) == wanted


@pytest.mark.slow  # scikit-learn takes seconds to import.
def test_a_tree_of_scikit_learn_is_followed_to_the_same_leaf() -> None:
    learn = pytest.importorskip("sklearn.tree")
    draw = random.Random(3)
    points = [(draw.randrange(1, 1 << 30), draw.randrange(2, 64)) for _ in range(2000)]
    labels = [(nbytes // ranks).bit_length() * ranks % 5 for nbytes, ranks in points]
    model = learn.DecisionTreeClassifier(max_leaf_nodes=64, random_state=0).fit(points, labels)
    inner = model.tree_
    made = Tree(
        ["bytes", "ranks"],
        [f"a{label}" for label in model.classes_],
        feature=inner.feature.tolist(),
        threshold=inner.threshold.tolist(),
        left=inner.children_left.tolist(),
        right=inner.children_right.tolist(),
        value=inner.value[:, 0].argmax(axis=1).tolist(),
    )
    for (nbytes, ranks), label in zip(points, model.predict(points), strict=True):
        chosen = made.get_coll_info(call(nbytes, ranks), table("x"))
        assert chosen is not None and chosen.name == f"a{label}"


def test_a_shortlist_takes_the_quickest_of_the_candidates_that_the_model_names() -> None:
    machine = emulator()
    asked = request(1 << 16)
    names = Tables(machine).of(asked)
    allowed = [name for name in names.algorithms if names.allows(name)]
    times = {name: machine.compile(asked, name).latency_ps for name in allowed}
    everything = Solo(machine, Shortlist(k=99)).choice(asked)
    assert everything is not None and everything.name == min(times, key=lambda name: times[name])
    # The model swears by the two slowest: the quicker of them is taken, and nothing else is simulated.
    slowest = sorted(times, key=lambda name: -times[name])[:2]
    chosen = Solo(machine, Shortlist(lambda call, table: dict.fromkeys(slowest, 1.0), 2)).choice(asked)
    assert chosen is not None and chosen.name == slowest[1]
    known = {name for name, us in zip(chosen.why.table.algorithms, chosen.why.table.us, strict=True) if us < UNKNOWN}
    assert known == set(slowest)
    assert chosen.why.table.cost(slowest[1]) == times[slowest[1]] / 1e6


def test_a_candidate_that_refuses_costs_the_shortlist_no_place() -> None:
    machine = emulator("npu_mesh_4x4")
    asked = Request("all_reduce", range(16), 512, "f16")
    masked = Tables(machine).of(asked).reasons
    chosen = Solo(machine, Shortlist(k=1)).choice(asked)
    assert chosen is not None and chosen.name not in masked


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("shortlst", "unknown selector 'shortlst'"),
        ({"kind": "shortlst"}, "unknown kind of selector"),
        ({"kind": "nccl", "k": 3}, "a selector of kind nccl has no k"),
        ({"kind": "nccl", "constants": {"base": 1}}, "no constants of NCCL's model: base"),
        ({"kind": "nccl", "constants": {"base_us": {"ring": 1}}}, "the constants of NCCL's model do not fit"),
        ({"kind": "nccl", "constants": {"generation": "kepler"}}, "do not fit: KeyError"),
        ({"kind": "shortlist", "k": 0}, "at least one candidate"),
        ({"kind": "shortlist", "model": 3}, "model: must be a selector"),
        ({"kind": "static"}, "algorithms: must map"),
        ({"kind": "ranges"}, "rules: must be a list"),
        ({"kind": "ranges", "rules": [3]}, "rule 0 of a selector must be a mapping"),
        ({"kind": "ranges", "rules": [{"collective": "all_reduce"}]}, "rule 0 of a selector has no algorithm"),
        ({"kind": "ranges", "rules": [{"collective": "x", "algorithm": "y"}]}, "an unknown collective 'x'"),
        (
            {"kind": "ranges", "rules": [{"collective": "all_reduce", "algorithm": "y", "max_bytes": -1}]},
            "an integer as max_bytes, not -1",
        ),
        ({"kind": "tree"}, "a tree has no choices, feature, inputs, left, right, threshold, value"),
        ({"kind": "tree", "file": "no_such.json"}, "cannot read the selector"),
    ],
)
def test_what_describes_no_selector_is_refused(value: Any, told: str) -> None:
    with pytest.raises(ConfigError, match="AHBM-C181") as caught:
        of(value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"left": [0, -1, -1]}, "node 0: its child 0 is not between 1 and 2"),
        ({"left": [9, -1, -1]}, "node 0: its child 9"),
        ({"feature": [1, -2, -2]}, "node 0: feature 1 of 1"),
        ({"threshold": [float("nan"), 0, 0]}, "no number"),
        ({"value": [0, 0, 2]}, "leaf value 2 of a tree with 2 choices"),
        ({"value": [0, 0]}, "the arrays must have one length"),
        ({"choices": [RING, 5]}, "no choice: 5"),
        ({"inputs": 5}, "inputs of a tree must be a list"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    good: dict[str, Any] = {
        "kind": "tree",
        "inputs": ["log2_bytes"],
        "choices": [TREE, {"algorithm": RING, "channels": 2}],
        "feature": [0, -2, -2],
        "threshold": [16.0, 0, 0],
        "left": [1, -1, -1],
        "right": [2, -1, -1],
        "value": [0, 0, 1],
    }
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(good), encoding="utf-8")
    chosen = of(str(path)).get_coll_info(call(1 << 20), table())
    assert isinstance(chosen, Choice) and (chosen.name, chosen.channels) == (RING, 2)
    path.write_text(json.dumps(good | change), encoding="utf-8")
    with pytest.raises(ConfigError, match="AHBM-C181") as caught:
        of(str(path))
    assert told in str(caught.value)


def test_a_file_of_python_has_the_selector(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def selector(algorithms, request):\n    return 'tree_allreduce'\n", encoding="utf-8")
    report = ahbm.run("all_reduce", topology="npu_ring_8", bytes_per_rank=4096, selector=str(path), data=False)
    assert report.algorithm == TREE
    path.write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cannot load the selector .*ZeroDivisionError"):
        of(str(path))


def test_a_choice_explains_itself() -> None:
    opened: Any = ahbm.open("all_reduce", topology="npu_ring_8", bytes_per_rank="64K", selector="nccl")
    found = opened.choice()
    assert found.selector == "nccl" and found.chosen in ("nccl_ring_allreduce", "double_binary_tree_allreduce")
    times = {one.algorithm: one.emulated_ns for one in found.candidates if one.emulated_ns is not None}
    for name, ns in times.items():
        assert ns == ahbm.run("all_reduce", name, "npu_ring_8", bytes_per_rank="64K", data=False).latency_ns
    others = min(ns for name, ns in times.items() if name != found.chosen)
    assert found.margin == others / times[found.chosen] - 1
    assert found.bound_ns <= min(times.values())
    assert found.own.predicted_us > 0
    text = str(found)
    assert "chosen" in text and all(one.masked in text for one in found.candidates)
    assert found.to_json()["algorithm"] == found.chosen
    assert opened.run(data=False).notes[0].startswith(f"{found.chosen} runs: the selector nccl chose it, predicts ")


def test_a_selector_without_an_emulator() -> None:
    model = NcclModel({"bus_gbs": 370.0})
    model.init(Comm(8))
    assert model.get_coll_info(call(1 << 28), table()) is not None
    with pytest.raises(ConfigError, match="neither a bus_gbs nor a machine"):
        NcclModel().init(Comm(8))


class Told(BaseSelector):
    """Keeps what it is told."""

    name = "told"

    def __init__(self, seen: list[tuple[str, int]]) -> None:
        self._seen = seen

    def __deepcopy__(self, _: object) -> Told:
        return self

    def init(self, comm: Comm) -> None:
        self._seen.append(("group", comm.nodes))

    def get_coll_info(self, call: Call, table: CostTable) -> None:
        self._seen.append(("call", call.nodes))


@pytest.mark.parametrize(
    ("machine", "ranks", "nodes"),
    [
        ("h100_2_nodes", range(16), 2),
        ("h100_2_nodes", range(8), 1),
        ("h100_2_nodes", (0, 8), 2),
        ("polaris_8_nodes", range(32), 8),
        ("npu_ring_8", range(8), 1),
    ],
)
def test_a_selector_is_told_the_nodes_of_its_group(machine: str, ranks: Any, nodes: int) -> None:
    seen: list[tuple[str, int]] = []
    Solo(emulator(machine), Told(seen)).choice(Request("all_reduce", ranks, 512, "f16"))
    assert seen == [("group", nodes), ("call", nodes)]


def test_ranks_that_are_pes_are_on_the_nodes_of_their_sips() -> None:
    pes = {"sip.cube_mesh.w": 1, "sip.cube_mesh.h": 1, "cube.pe_layout.corners": 1, "cube.pe_layout.pe_per_corner": 2}
    nodes = {"system.sips.count": 4, "system.sips.topology": "nodes", "system.sips.nodes.size": 2}
    tables = Tables(Emulator.load(overrides=pes | nodes | {"defaults.world_size": 8}))
    assert tables.nodes(range(4)) == 1 and tables.nodes(range(8)) == 2


def test_a_rule_for_several_nodes_is_taken_on_them() -> None:
    rules = Ranges([Range("all_reduce", TREE, min_nodes=2), Range("all_reduce", RING)])
    for machine, name in ("h100_2_nodes", TREE), ("npu_ring_8", RING):
        report = ahbm.run("all_reduce", topology=machine, bytes_per_rank=4096, selector=rules, data=False)
        assert report.algorithm == name
