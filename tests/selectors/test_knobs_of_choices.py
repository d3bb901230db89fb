"""Knobs that a selector chooses are in the simulated time, as far as the algorithm and the machine have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ahbm
import ahbm.distributed as dist
from ahbm.core.choice import SELECTOR, Choice
from ahbm.errors import ConfigError
from ahbm.selectors import Static

SIZE = 1 << 18
ENTRY = {"algorithms.mine.synth.method": "ring"}
LIBRARY = {
    "protocols.ll.step_ns": 50,
    "protocols.ll.max_gbs": 20,
    "protocols.simple.step_ns": 900,
}


def selector(name: str = "mine", **knobs: Any) -> Static:
    return Static({"all_reduce": Choice(SELECTOR, name, **knobs)})


def run(selector: Static | None = None, **overrides: object) -> ahbm.Report:
    told = {key.replace("__", "."): value for key, value in overrides.items()}
    algorithm = None if selector is not None else "mine"
    return ahbm.run(
        algorithm=algorithm, topology="npu_ring_8", bytes_per_rank=SIZE, selector=selector, overrides=ENTRY | told
    )


@pytest.mark.parametrize(
    ("knobs", "entry"),
    [
        ({"channels": 2}, {"instances": 2}),
        ({"chunk_bytes": 4096}, {"slice_bytes": 4096}),
        ({"protocol": "ll128"}, {"protocol": "LL128"}),
        ({"protocol": "ll", "channels": 4}, {"protocol": "LL", "instances": 4}),
    ],
)
def test_a_knob_is_the_key_of_the_entry(knobs: dict[str, Any], entry: dict[str, object]) -> None:
    found = run(selector(**knobs))
    wanted = run(**{f"algorithms.mine.{key}": value for key, value in entry.items()})
    assert found.latency_ns == wanted.latency_ns != run().latency_ns
    assert found.notes[-1] == f"knobs: {', '.join(f'{name} {value}' for name, value in knobs.items())} in the time"


def test_threads_slow_the_math() -> None:
    def ring(**overrides: object) -> ahbm.Report:
        return ahbm.run(algorithm="ring_allreduce", bytes_per_rank=SIZE, overrides=overrides)

    few = ahbm.run(bytes_per_rank=SIZE, selector=selector("ring_allreduce", threads=4))
    assert few.latency_ns == ring(**{"pe.math.f16_per_ns": 2}).latency_ns > ring().latency_ns
    assert (
        ahbm.run(bytes_per_rank=SIZE, selector=selector("ring_allreduce", threads=512)).latency_ns == ring().latency_ns
    )


def test_a_protocol_is_one_of_the_library() -> None:
    for name in ("ll", "simple"):
        found = run(selector(protocol=name), **LIBRARY)
        own = {"algorithms.mine.protocol": {"ll": "LL", "simple": "Simple"}[name]}
        assert found.latency_ns == run(**LIBRARY, **own, protocol=name).latency_ns


def test_what_nobody_has_is_carried() -> None:
    found = ahbm.run(
        topology="npu_ring_8", bytes_per_rank=SIZE, selector=selector("tree_allreduce", chunk_bytes=64, threads=8)
    )
    plain = ahbm.run(topology="npu_ring_8", algorithm="tree_allreduce", bytes_per_rank=SIZE)
    assert found.latency_ns == plain.latency_ns
    assert found.notes[-1] == "knobs: none in the time; threads 8, chunk_bytes 64 carried, not modelled"


def test_a_kernel_takes_those_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        'COLLECTIVE = "all_reduce"\n\n\n'
        "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, channels=1):\n"
        "    return (world_size, n_elem, channels)\n\n\n"
        "def kernel(t, ranks, n, channels, rank, kind, w, h, *, tl):\n"
        '    x = tl.load(t, (n,), "f16")\n'
        "    for _ in range(channels):\n"
        '        tl.send(dir="global_E", src=x)\n'
        '        other = tl.recv(dir="global_W", shape=(n,), dtype="f16")\n'
        "    tl.store(t, x + other)\n",
        encoding="utf-8",
    )
    machine = {"system.sips.count": 2, "algorithms.k.module": str(path)}
    one, two = (
        ahbm.run(bytes_per_rank=1024, overrides=machine, selector=selector("k", channels=channels))
        for channels in (1, 2)
    )
    assert one.latency_ns < two.latency_ns and two.messages == 2 * one.messages


def test_calls_of_ranks_and_of_jobs() -> None:
    def worker() -> tuple[float, float]:
        dist.init_process_group(topology="npu_ring_8", overrides=ENTRY, selector=selector(channels=2))
        x = np.ones(SIZE // 2, np.float16)
        dist.all_reduce(x)
        return dist.stats()[0].latency_ns, float(x[0])

    times = ahbm.spawn(worker, topology="npu_ring_8", overrides=ENTRY)
    assert set(times) == {(run(**{"algorithms.mine.instances": 2}).latency_ns, 8.0)}


def test_a_job_keeps_the_threads_of_a_call(tmp_path: Path) -> None:
    from ahbm.job.reading import How
    from ahbm.job.replay import replay
    from ahbm.job.transformer import Transformer
    from ahbm.ranks.setup import Setup

    job = Transformer(layers=1, hidden=64, heads=2, sequence=32, vocabulary=1 << 12, dp=4).workload()
    config = tmp_path / "ccl.yaml"
    latencies = []
    for threads in (8, 512):
        choice = f"{{algorithm: ring_allreduce, threads: {threads}}}"
        config.write_text(
            f"collectives: {{all_reduce: [{{selector: {{kind: static, algorithms: {{all_reduce: {choice}}}}}}}]}}\n",
            encoding="utf-8",
        )
        setup = Setup(ccl=str(config), overrides={"system.sips.count": 4})
        found = [replay(job, "job", setup, How(fold=fold)) for fold in (True, False)]
        assert found[0].times_hash == found[1].times_hash
        latencies.append(found[0].latency_ns)
    assert latencies[0] > latencies[1]


@pytest.mark.parametrize("knobs", [{"channels": 0}, {"threads": 2.5}, {"chunk_bytes": -1}, {"protocol": 3}])
def test_knobs_that_are_none(knobs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        run(selector(**knobs))
    assert caught.value.code == "AHBM-C180"


def test_a_pickled_report_leaves_knobs_behind() -> None:
    import pickle

    found = pickle.loads(pickle.dumps(run(selector(channels=2))))
    with pytest.raises(ConfigError, match="knobs of a selector") as caught:
        found.program()
    assert caught.value.code == "AHBM-C163"
