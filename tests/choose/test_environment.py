"""`Select-v0` and `SelectKnobs-v0`: what they show is true, an episode is its seed's, and what cannot be is refused."""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
import random
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import ahbm
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.episodes import Job, Mix
from ahbm.choose.knob_space import KnobSpace
from ahbm.choose.oracle import Oracle
from ahbm.choose.outcomes import Live, Outcomes, Recorded, faulty, request_of
from ahbm.errors import AhbmError, UnsupportedError
from ahbm.job.transformer import Transformer
from support import rings
from support.commands import run

gymnasium = pytest.importorskip("gymnasium")
env_checker = pytest.importorskip("gymnasium.utils.env_checker")

from ahbm.choose.environment import Select, SelectKnobs  # noqa: E402

NAMES = ["ring_allreduce", "tree_allreduce", "recursive_doubling_allreduce", "synth:swing", "synth:routed"]
"""The last one refuses every all_reduce."""
MACHINES = ["npu_ring_8", "npu_mesh_4x4"]
SIZES = [512, 1 << 14, 1 << 20]
CCL = {"defaults.buffer_kind": "hbm"}
SLOW = {"faults.links": "[{from: 0, to: 1, slowdown: 8}]"}
CATALOGUE = Catalogue.of("all_reduce", NAMES, overrides=CCL)
KNOBS = KnobSpace(Catalogue.of("all_reduce", ["ring_allreduce", "synth:greedy"], overrides=CCL), slices=(None, 1 << 14))


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded(Oracle(CATALOGUE, MACHINES, SIZES).table())


def made(outcomes: Outcomes, **given: Any) -> Select:
    return Select(outcomes, **{"calls": 40, **given})


def episode(env: Select | SelectKnobs, seed: int, **options: Any) -> list[tuple[Any, ...]]:
    """Every step of an episode of actions drawn with the seed."""
    draw = random.Random(seed)
    observation, info = env.reset(seed=seed, options=options)
    steps: list[tuple[Any, ...]] = [(observation, 0.0, False, False, info)]
    while not steps[-1][2] and not steps[-1][3]:
        space = env.action_space
        sizes = space.nvec.tolist() if hasattr(space, "nvec") else [space.n]
        action = [draw.randrange(size) for size in sizes]
        steps.append(env.step(action if len(sizes) > 1 else action[0]))
    return steps


def digest(steps: list[tuple[Any, ...]]) -> str:
    found = hashlib.sha256()
    for observation, reward, terminated, truncated, info in steps:
        for name in sorted(observation):
            found.update(observation[name].tobytes())
        found.update(float(reward).hex().encode())
        found.update(repr((terminated, truncated, sorted((k, repr(v)) for k, v in info.items()))).encode())
    return found.hexdigest()


def refused(code: str) -> Any:
    return pytest.raises(AhbmError, match=code)


@pytest.mark.parametrize("name", ["ahbm/Select-v0", "ahbm/SelectKnobs-v0"])
def test_gymnasium_finds_nothing_wrong(name: str, recorded: Recorded) -> None:
    given: dict[str, Any] = {"outcomes": recorded}
    if "Knobs" in name:
        given = {"outcomes": Live(KNOBS.catalogue, "npu_ring_8"), "knobs": KNOBS, "mix": Mix([1 << 16])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The second version has other knobs.
        warnings.filterwarnings("ignore", ".*is out of date")
        env_checker.check_env(gymnasium.make(name, **given).unwrapped)


def test_a_seed_is_an_episode(recorded: Recorded) -> None:
    env, other = made(recorded), made(Recorded(Oracle(CATALOGUE, MACHINES, SIZES).table()))
    assert digest(episode(env, 7)) == digest(episode(env, 7)) == digest(episode(other, 7))
    assert len({digest(episode(env, seed)) for seed in range(8)}) == 8


def test_tables_and_the_emulator_say_the_same(recorded: Recorded) -> None:
    live = made(Live(CATALOGUE, MACHINES), mix=Mix(SIZES))
    assert digest(episode(live, 3)) == digest(episode(made(recorded), 3))


def test_times_are_those_of_a_run(recorded: Recorded) -> None:
    for _, reward, _, _, info in episode(made(recorded), 1)[1:9]:
        name = info.get("instead", info["algorithm"])
        found = ahbm.run(
            "all_reduce",
            name.replace("synth_", "synth:") if name.startswith("synth_") else name,
            topology=info["machine"],
            bytes_per_rank=info["bytes"],
            overrides=CCL,
            data=False,
        )
        assert found.latency_ns == info["time_ns"]
        assert math.isclose(reward, -math.log(info["time_ns"] / info["bound_ns"]), rel_tol=1e-6, abs_tol=1e-6)


def test_the_oracle_is_the_least_of_all(recorded: Recorded) -> None:
    env = made(recorded)
    env.reset(seed=0)
    for _ in range(20):
        outcome = env.outcome()
        info = env.step(0)[4]
        times = [ps for ps in outcome.ps if ps is not None]
        assert info["oracle_ns"] == min(times) / 1000
        assert info["regret"] == info["time_ns"] * 1000 / min(times) - 1
        assert info["bound_ns"] <= info["oracle_ns"]


def test_what_does_not_run_is_masked_and_the_slowest_stands_for_it(recorded: Recorded) -> None:
    env = made(recorded)
    observation, info = env.reset(seed=0, options={"machine": "npu_ring_8"})
    assert observation["action_mask"].tolist() == info["action_mask"].tolist() == [1, 1, 1, 1, 0]
    assert env.action_masks().tolist() == [True, True, True, True, False]
    slowest = max(ps for ps in env.outcome().ps if ps is not None)
    told = env.step(4)[4]
    assert told["refused"][0] == "AHBM-U406" and told["time_ns"] == slowest / 1000
    assert told["instead"] != told["algorithm"] == "synth_routed"
    env.action_space.seed(0)
    for _ in range(39):
        info = env.step(env.action_space.sample(mask=info["action_mask"]))[4]
        assert "refused" not in info


def test_a_mix_is_truncated_and_then_needs_a_reset(recorded: Recorded) -> None:
    env = made(recorded, calls=5)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    steps = episode(env, 0)
    assert [step[2:4] for step in steps[1:]] == [(False, False)] * 4 + [(False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    assert {step[4]["bytes"] for step in episode(made(recorded), 0)[1:]} == set(SIZES)


def test_the_last_times_are_shown(recorded: Recorded) -> None:
    steps = episode(made(recorded, history=3), 2)
    logs = [math.log(info["time_ns"] / info["bound_ns"]) for _, _, _, _, info in steps[1:]]
    assert steps[0][0]["recent"].tolist() == [0, 0, 0]
    assert steps[-1][0]["recent"].tolist() == pytest.approx(logs[-1:-4:-1], rel=1e-6)


def test_a_job_is_its_calls_in_order() -> None:
    job = Job(Transformer(layers=2, hidden=256, heads=4, sequence=128, tp=4, dp=4, micro_batches=1))
    names = {"all_gather": ["synth:ring"], "reduce_scatter": ["synth:ring"], "all_reduce": NAMES[:2]}
    catalogue = Catalogue.of("all_reduce", NAMES[:3], overrides=CCL)
    env = made(Live(catalogue, "npu_mesh_4x4"), jobs=[job], calls=1000)
    steps = episode(env, 0)
    asked = job.calls(env.outcomes, "npu_mesh_4x4")
    assert [(info["collective"], info["bytes"]) for *_, info in steps[1:]] == [
        (one.request.collective, one.request.nbytes) for one in asked
    ]
    assert steps[-1][2:4] == (True, False) and names
    assert len({len(one.request.ranks) for one in asked} | {one.request.ranks for one in asked}) > 2
    assert any(one.pipelined for one in asked) and steps[1][0]["call"].shape == steps[0][0]["call"].shape
    assert episode(made(Live(catalogue, "npu_mesh_4x4"), jobs=[job], calls=2), 0)[-1][2:4] == (False, True)


def test_a_fault_strikes_once_and_nothing_but_the_times_says_so() -> None:
    outcomes = Live(CATALOGUE, "npu_ring_8")
    steps = episode(made(outcomes, mix=Mix([1 << 20]), faults=[SLOW]), 5)
    names = [info["machine"] for *_, info in steps[1:]]
    struck = names.index("npu_ring_8, faults.links=[{from: 0, to: 1, slowdown: 8}]")
    assert struck and len(set(names[:struck])) == len(set(names[struck:])) == 1
    shown = {step[0]["machine"].tobytes() + step[0]["candidates"].tobytes() for step in steps}
    assert len(shown) == 1
    parts = (steps[1 : struck + 1], steps[struck + 1 :])
    before, after = ({info["algorithm"]: info["time_ns"] for *_, info in part} for part in parts)
    assert all(after[name] > before[name] for name in set(before) & set(after))


def test_tables_need_the_machines_with_faults() -> None:
    machines = faulty(["npu_ring_8"], [SLOW])
    with refused("AHBM-C129"):
        made(Recorded(Oracle(CATALOGUE, "npu_ring_8", SIZES).table()), faults=[SLOW]).reset(seed=0)
    table = Oracle(CATALOGUE, ["npu_ring_8", *machines], SIZES).table()
    live = made(Live(CATALOGUE, "npu_ring_8"), mix=Mix(SIZES), faults=[SLOW])
    assert digest(episode(made(Recorded(table), faults=[SLOW]), 4, machine="npu_ring_8")) == digest(
        episode(live, 4, machine="npu_ring_8")
    )


def test_chunks_share_the_critical_path(recorded: Recorded) -> None:
    env = made(recorded, per_chunk=True, calls=6)
    for *_, info in episode(env, 0)[1:]:
        shares = info["per_chunk"]
        assert shares.min() >= 0 and 0 < shares.sum() <= 1 + 1e-12
    env.reset(seed=0, options={"machine": "npu_ring_8"})
    assert len(env.step(0)[4]["per_chunk"]) == 2 * 8 * 7
    ill = faulty(["npu_ring_8"], [{"faults.links": "[{from: 3, to: 4, slowdown: 8, bidirectional: false}]"}])
    slow = made(Live(CATALOGUE, ill), mix=Mix([1 << 20]), per_chunk=True)
    slow.reset(seed=0)
    by_rank = slow.step(0)[4]["per_chunk"].reshape(8, 14).sum(axis=1)
    assert by_rank.argmax() == 3 and by_rank[3] > 0.8


def test_a_timeline_without_detail_credits_nobody() -> None:
    emulator = ahbm.Emulator.load("npu_ring_8")
    program = emulator.compile(request_of("all_reduce", 1 << 10, 8, "f16"), "ring_allreduce").program
    assert program is not None
    assert program.simulate(record=False, detail=True).chunks_ps().shape == (112,)
    with refused("AHBM-V123"):
        program.simulate().chunks_ps()


def test_knobs_change_what_the_emulator_models() -> None:
    env = SelectKnobs(Live(KNOBS.catalogue, "npu_ring_8"), KNOBS, mix=Mix([1 << 20]), calls=50)
    keys = {"chunks": "synth.chunks", "slots": "n_slots", "slice": "slice_bytes"}
    seen = set()
    for *_, info in episode(env, 0)[1:]:
        name, *told = info["algorithm"].split("+")
        values = dict(part.split("=") for part in told)
        overrides = {f"algorithms.{name}.{keys[knob]}": int(value) for knob, value in values.items()}
        if name == "synth_greedy":
            overrides |= {"algorithms.synth_greedy.synth.method": "greedy"}
        found = ahbm.run(
            "all_reduce", name, topology="npu_ring_8", bytes_per_rank=1 << 20, overrides=CCL | overrides, data=False
        )
        assert found.latency_ns == info["time_ns"]
        idle = info.get("without_effect", ())
        assert set(idle) <= ({"chunks", "slice"} if name == "ring_allreduce" else set())
        seen.add((name, info["time_ns"]))
    assert len(seen) > 6


def test_every_combination_of_knobs_has_one_entry() -> None:
    sizes = [len(values) for values in KNOBS.axes]
    actions = list(product(*map(range, sizes)))
    entries = [KNOBS.entry(action)[0] for action in actions]
    assert set(entries) == set(range(len(KNOBS.catalogue)))
    assert [KNOBS.entry((at, 0, 0, 0))[0] for at in range(2)] == list(KNOBS.plain)
    with_effect = [KNOBS.entry(action)[0] for action in actions if not KNOBS.entry(action)[1]]
    assert len(set(with_effect)) == len(with_effect) == len(KNOBS.catalogue)


def test_outcomes_are_sent_and_shared(recorded: Recorded) -> None:
    assert copy.deepcopy(recorded) is recorded
    assert digest(episode(made(pickle.loads(pickle.dumps(recorded))), 1)) == digest(episode(made(recorded), 1))


def test_what_cannot_be_is_refused_by_name(recorded: Recorded) -> None:
    env = made(recorded)
    env.reset(seed=0)
    for action in (5, -1, 1.5, "ring", None, True, [0]):
        with refused("AHBM-C129"):
            env.step(action)
    for options in ({"rank": 1}, {"machine": "npu"}, {"machine": 3}, {"job": 0}, "machine", [1], {1: 2}):
        with refused("AHBM-C129"):
            env.reset(options=options)
    for wrong in (
        {"calls": 0},
        {"history": -1},
        {"calls": "many"},
        {"jobs": ["step"]},
        {"mix": 4},
        {"faults": [3]},
        {"jobs": 1},
    ):
        with refused("AHBM-C129"):
            made(recorded, **wrong)
    for build in (
        lambda: Select("table"),  # type: ignore[arg-type]
        lambda: Recorded([]),
        lambda: Mix([]),
        lambda: Mix([0]),
        lambda: KnobSpace(CATALOGUE, slots=(4,)),
        lambda: SelectKnobs(recorded, KNOBS),
        lambda: made(Live(CATALOGUE, "npu_ring_8")).reset(seed=0),
        lambda: made(recorded, mix=Mix([4096])).reset(seed=0),
    ):
        with refused("AHBM-C129"):
            build()


def test_a_call_that_nothing_runs_and_one_without_a_bound_are_errors() -> None:
    nothing = Live(Catalogue.of("all_reduce", ["synth:routed"]), "npu_ring_8")
    with refused("AHBM-C151"):
        made(nothing, mix=Mix([1024])).reset(seed=0)
    alone = Live(Catalogue.of("all_reduce", ["ring_allreduce"], overrides={"defaults.world_size": 1}), "npu_ring_8")
    with pytest.raises(UnsupportedError, match="AHBM-U148"):
        made(alone, mix=Mix([1024])).reset(seed=0)


def test_without_gymnasium_its_name_is_said(tmp_path: Any) -> None:
    script = "import sys\nsys.modules['gymnasium'] = None\nimport ahbm.choose.environment\n"
    (tmp_path / "bare.py").write_text(script, encoding="utf-8")
    code, out, err = run("python", ["bare.py"], tmp_path)
    assert code and "AHBM-U145" in out + err and "ahbm[rl]" in out + err
    assert "gymnasium" in sys.modules


def test_who_is_wrong_does_not_run_in_simulated_calls_either(here: Path) -> None:
    names = rings.write(here, **rings.SPOILT, **rings.OPAQUE)
    live = Live(Catalogue.of("all_reduce", ["ring_allreduce", *names]), "npu_ring_8")
    outcome = live.of("npu_ring_8", request_of("all_reduce", 1024, 8, "f16"))
    assert outcome.best == 0 and [ps is None for ps in outcome.ps] == [False, *[True] * len(names)]
    assert {code for code, _ in outcome.refusals.values()} == {"AHBM-V401", "AHBM-V301"}
    nobody = Live(Catalogue.of("all_reduce", names), "npu_ring_8")
    with refused("AHBM-V417"):
        made(nobody, mix=Mix([1024])).reset(seed=0)
