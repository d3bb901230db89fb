"""The search of plans against a simulation of every plan, and its memory against formulae."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ahbm.cli import app
from ahbm.config.topology import load_machine
from ahbm.errors import ConfigError
from ahbm.job.replay import replay
from ahbm.job.transformer import SCHEDULES, Transformer
from ahbm.planning import script
from ahbm.planning.bounds import Bounds
from ahbm.planning.candidates import Choices, candidates
from ahbm.planning.memory import in_flight, memory_of
from ahbm.planning.search import Found, search
from ahbm.ranks.setup import Setup
from ahbm.table.engine import Pool
from support.commands import run

MODEL = {"layers": 4, "hidden": 256, "heads": 8, "sequence": 128, "vocabulary": 512}
SPACES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"ranks": 4, "batch": 8}, {}),
    ({"ranks": 8, "batch": 16}, {"micro_batch": [1, 2], "zero": [0, 1]}),
    ({"ranks": 8, "batch": 8}, {"tp": [1, 2], "recompute": ["none"]}),
    ({"ranks": 4, "batch": 16}, {"pp": [2, 4], "micro_batch": [1]}),
    (
        {"ranks": 4, "batch": 16},
        {
            "pp": [2, 4],
            "virtual_stages": [1, 2],
            "schedule": ["1f1b", "zb1", "zbv", "dualpipev"],
            "recompute": ["none"],
        },
    ),
    ({"ranks": 8, "batch": 16}, {"tp": [2], "cp": [1, 2], "zero": [1, 3], "recompute": ["none", "full"]}),
]


def told(found: Found) -> list[tuple[str, float]]:
    return [(str(plan), plan.time_ns) for plan in found.best]


@pytest.mark.parametrize(("job", "limits"), SPACES)
def test_bounds_never_cut_the_best(job: dict[str, Any], limits: dict[str, Any], tmp_path: Path) -> None:
    # What one has simulated, the other finds in the store.
    terms = {**job, "topology": "dgx_h100", "choices": Choices(**limits), "store": tmp_path / "rows"}
    every, found = search(MODEL, **terms, exhaustive=True), search(MODEL, **terms)
    assert told(found) == told(every)
    front = [[(plan.time_ns, plan.memory.total) for plan in of.front] for of in (found, every)]
    assert front[0] == front[1]
    assert every.measured == every.fit >= found.measured
    assert all(plan.bound_ns <= plan.time_ns for plan in every.best)


def test_processes_that_share_the_work_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    start = Pool.open
    monkeypatch.setattr("ahbm.sweeps.sweep.CASES_OF_A_WORKER", 2)
    monkeypatch.setattr(Pool, "open", lambda self: opened.append(self.window) or start(self))
    terms = {"ranks": 4, "batch": 4, "topology": "dgx_h100", "choices": Choices(recompute=["none"], zero=[0])}
    alone, shared = search(MODEL, **terms), search(MODEL, **terms, jobs=2)
    assert told(alone) == told(shared) and alone.measured == shared.measured > 4
    assert opened == [4], "two processes for the whole search"


def test_a_bound_is_what_a_lone_rank_computes() -> None:
    of = Transformer(**MODEL, micro_batches=3)
    machine = load_machine("dgx_h100", {})
    report = replay(of.workload(), "step", Setup("dgx_h100"))
    least = Bounds(machine).least_ps(of) / 1000
    # The optimizer comes beside it.
    assert 0.8 * report.latency_ns < least < report.latency_ns


def test_memory_is_that_of_the_formulae() -> None:
    of = Transformer(layers=2, hidden=64, heads=4, sequence=32, vocabulary=128, dp=2, micro_batch=2)
    plain = memory_of(of)
    parameters = 2 * 12 * 64 * 64 + 2 * 4 * 64 + 2 * 128 * 64
    assert plain.parameters == plain.gradients == 2 * parameters and plain.optimizer == 12 * parameters
    assert memory_of(replace(of, zero=1)).optimizer == 6 * parameters
    assert memory_of(replace(of, zero=2)).gradients == parameters
    # 32 bytes of a token and column of each layer (Korthikanti et al. have 34, with the masks of dropout).
    tokens = 2 * 32
    logits = tokens * 128 * 6
    assert plain.activations == 2 * 32 * tokens * 64 + logits
    full = memory_of(replace(of, recompute="full"))
    assert full.activations == 2 * 2 * tokens * 64 + logits + (32 - 2) * tokens * 64
    assert memory_of(replace(of, tp=2, sequence_parallel=True)).activations == (2 * 32 * tokens * 64 + logits) // 2


def test_micro_batches_in_flight() -> None:
    of = Transformer(layers=8, hidden=64, pp=4, micro_batches=8)
    assert [in_flight(of, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight(replace(of, schedule="gpipe"), 3) == 8
    assert [in_flight(replace(of, schedule="zb1"), stage) for stage in range(4)] == [4, 4, 4, 4]
    assert max(in_flight(replace(of, schedule="zbv", virtual_stages=2), stage) for stage in range(4)) == 8
    with pytest.raises(ConfigError, match="C157"):
        in_flight(replace(of, schedule="dualpipev", virtual_stages=2, micro_batches=4), 0)
    assert [in_flight(replace(of, virtual_stages=2), stage) for stage in range(4)] == [11, 9, 7, 5]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_search_and_the_generator_know_the_same_orders(schedule: str) -> None:
    """Whether a schedule fits is asked by both: the search leaves out what the generator refuses, and nothing else."""
    for pp, chunks, micro_batches in product((2, 4), (1, 2), (1, 2, 3, 4, 6, 8)):
        choices = Choices(
            tp=[1], pp=[pp], virtual_stages=[chunks], schedule=[schedule], zero=[0], micro_batch=[1], recompute=["none"]
        )
        model = {**MODEL, "layers": 8}
        step = Transformer(**model, pp=pp, virtual_stages=chunks, schedule=schedule, micro_batches=micro_batches)
        try:
            step.workload()
        except ConfigError:
            with pytest.raises(ConfigError, match="no plan divides"):
                list(candidates(model, pp, micro_batches, choices, 8))
        else:
            assert list(candidates(model, pp, micro_batches, choices, 8)) == [replace(step, recompute="none")]


def test_a_schedule_of_the_model_or_of_all_plans_is_taken() -> None:
    limits = {"pp": [2], "virtual_stages": [1]}
    for model, also in (({**MODEL, "schedule": "zb1"}, {}), (MODEL, {"schedule": "zb1"})):
        found = list(candidates(model, 4, 8, Choices(**limits, also=also), 8))
        assert found and {plan.schedule for plan in found} == {"zb1"}


def test_plans_divide_all_ranks_and_sequences() -> None:
    found = list(candidates({**MODEL, "layers": 6}, 8, 16, Choices(), 8))
    assert len(found) == len({str(sorted(vars(plan).items(), key=str)) for plan in found}) > 20
    for plan in found:
        assert plan.tp * plan.pp * plan.cp * plan.dp == 8
        assert plan.dp * plan.micro_batch * plan.micro_batches == 16
    assert any(plan.end_layers for plan in found)
    with pytest.raises(ConfigError, match="no plan divides 8 ranks, 3 sequences"):
        list(candidates(MODEL, 8, 3, Choices(tp=[1], pp=[1]), 8))


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ConfigError, match="no plan fits in"):
        search(MODEL, 4, topology="dgx_h100", capacity=1 << 20)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("".join(f"{key}: {value}\n" for key, value in MODEL.items()))
    given = ["plan", "m.yaml", "-t", "dgx_h100", "--ranks", "4", "--batch", "8", "--price-per-hour", "2"]
    code, out, err = run("ahbm", [*given, "--json", "--store", "rows"], tmp_path)
    assert code == 0, err
    found = json.loads(out)
    best = found["best"][0]
    assert best["cost_per_1m"] == pytest.approx(2 * 4 * best["time_ns"] / 3.6e12 / (8 * 128) * 1e6)
    code, out, err = run("ahbm", given, tmp_path)
    assert code == 0 and best["plan"] in out and "per 1M tokens" in out, err
    code, out, err = run("ahbm", ["plan", "lama3-8b", "--ranks", "4"], tmp_path)
    assert code != 0 and "llama3-8b" in err


def test_a_script_is_planned_by_its_numbers_with_its_own_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    asked = []

    def numbers(*given: object) -> dict[str, Any]:
        asked.append(given)
        return MODEL | {"micro_batch": 2}

    monkeypatch.setattr("ahbm.planning.script.trained", numbers)
    app(["plan", str(script), "-t", "dgx_h100", "--ranks", "2", "--json", "--", "3", "-x"], standalone_mode=False)
    assert asked == [(str(script), ["3", "-x"], "dgx_h100")]
    answer = json.loads(capsys.readouterr().out)
    assert (answer["tokens"], answer["model"]) == (2 * 2 * MODEL["sequence"], MODEL | {"micro_batch": 2})
    app(["plan", str(script), "-t", "dgx_h100", "--ranks", "2"], standalone_mode=False)
    told = "layers 4, hidden 256, heads 8, sequence 128, vocabulary 512, micro_batch 2"
    assert capsys.readouterr().out.startswith(f"{script}: {told}\n")
    with pytest.raises(ConfigError, match="gpt2 is no script"):
        app(["plan", "gpt2", "3", "-t", "dgx_h100", "--ranks", "2"], standalone_mode=False)


def test_a_script_of_a_group_is_refused_by_what_its_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "[rank0]: Traceback\n[rank0]: ahbm.errors.ConfigError: AHBM-C157 no layers\n[rank0]:   hint: give them\n"
    monkeypatch.setattr(script, "find_spec", lambda name: name)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: SimpleNamespace(stderr=said.encode(), returncode=1))
    with pytest.raises(ConfigError) as raised:
        script.trained("train.py")
    assert raised.value.message == "train.py: no layers" and raised.value.hint == "give them"
