"""Machines whose kernels are fitted to measured operations: traces of PyTorch's profiler and tables of kernels."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahbm._core import Machine, write_recording
from ahbm.calibrate import computing, hosts, templates
from ahbm.calibrate.accelerators import named
from ahbm.calibrate.readers import operations
from ahbm.calibrate.written import text
from ahbm.errors import AhbmError, ConfigError, FormatError
from ahbm.kernels import Tensor, describe
from support.commands import run
from support.profiles import SHAPES, TRUE, event, launches, machine, stated, takes, traced


def test_a_machine_is_found_again_from_its_trace(tmp_path: Path) -> None:
    path = traced(tmp_path, machine(TRUE))
    code, out, err = run("ahbm", ["calibrate", str(path), "-o", "mine.yaml", "--json"], tmp_path)
    assert code == 0, err
    told = json.loads(out)
    of_all = told["held_back"][0]
    assert of_all["kind"] == "all" and 50 < of_all["rows"] <= 3 * len(SHAPES)
    assert of_all["median_percent"] < 2 and abs(of_all["total_percent"]) < 2
    assert any("triton_fused" in note for note in told["notes"])
    found, true = Machine.from_yaml((tmp_path / "mine.yaml").read_text(), "mine", []), machine(TRUE)
    assert found.compute is not None and found.compute.fit is not None
    assert found.compute.fit["held_back"][0] == of_all
    assert found.compute.fit["sources"][0]["device"] == "NVIDIA A100-SXM4-80GB"
    for name, args in (("relu", (Tensor((5000, 3000)),)), ("mm", (Tensor((3000, 900)), Tensor((900, 256))))):
        for each in describe(name, args):
            assert takes(found, each) == pytest.approx(takes(true, each), rel=0.05)


def test_a_machine_of_a_file_keeps_all_but_what_is_fitted(tmp_path: Path) -> None:
    path = traced(tmp_path, machine(TRUE), device="a GPU of mine")
    with pytest.raises(ConfigError, match="AHBM-C195 no data sheet of 'a GPU of mine'"):
        computing.calibrate(operations.read(path))
    code, _, err = run("ahbm", ["calibrate", str(path), "-t", "dgx_a100_2_nodes", "-o", "mine.yaml"], tmp_path)
    assert code == 0, err
    before = templates.declared("dgx_a100_2_nodes")
    after = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert before.pop("compute") != after.pop("compute") and before == after
    code, _, err = run("ahbm", ["calibrate", str(path), "--ranks", "8"], tmp_path)
    assert code and "AHBM-C146" in err


def test_a_table_of_kernels_is_fitted_by_device(tmp_path: Path) -> None:
    true = machine(TRUE)
    lines = ["device,op,d0,d1,d2,d3,latency_us"]
    for rows, columns in SHAPES:
        product = describe("bmm", (Tensor((4, rows, columns)), Tensor((4, columns, 96))))
        ps = sum(takes(true, each) for each in product)
        lines += [f"NVIDIA A100,bmm,4,{rows},{columns},96,{ps / 1e6}", f"Tesla T4,relu,{rows},{columns},,,{9 + rows}"]
    table = tmp_path / "kernels.csv"
    table.write_text("\n".join(lines))
    assert operations.sort(table) == "kernels"
    assert [each.device for each in operations.read(table)] == ["NVIDIA A100", "Tesla T4"]
    with pytest.raises(ConfigError, match="several accelerators"):
        computing.calibrate(operations.read(table))
    found = computing.calibrate(operations.read(table, "A100"))
    assert found.errors[0].median < 3 and "A100" in found.tree["pe"]["roofline"]["accelerator"]
    with pytest.raises(FormatError, match="AHBM-F213"):
        operations.read(table, "H100")


def test_a_pipe_is_left_to_who_reads_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert operations.sort(tmp_path / "pipe.csv") == "other"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("a,bmm,1,2,3,4,nan", "F211"),
        ("a,bmm,1,2,3,4,-1", "F211"),
        ("a,bmm,1,2,3,99999999999999,1", "F211"),
        ("a,bmm,0,2,3,4,1", "F211"),
        ("a,fft,1,2,,,1", "F211"),
        ("a,relu,1,x,,,1", "F211"),
        ("a" * 5000 + ",relu,1,2,,,1", "F210"),
    ],
)
def test_a_row_that_cannot_be_is_named(tmp_path: Path, row: str, code: str) -> None:
    (tmp_path / "k.csv").write_text(f"device,op,d0,d1,d2,d3,latency_us\n{row}\n")
    with pytest.raises(FormatError, match=f"AHBM-{code}"):
        operations.read(tmp_path / "k.csv")


def test_the_host_of_a_trace_is_compared_with_the_reference(tmp_path: Path) -> None:
    """Twice as slow in every operation: twice the time; about as quick: the machine's own."""
    for factor in (2.0, 1.1):
        events, at = launches(1.0, 1, "relu", [3.0], **stated((64, 64))), 10.0
        for name, us in hosts.REFERENCE.items():
            for _ in range(hosts.OFTEN):
                events.append(event("cpu_op", name, at, factor * us))
                at += 1000
        path = tmp_path / "host.json"
        device = [{"id": 0, "name": "NVIDIA A100"}]
        path.write_text(json.dumps({"deviceProperties": device, "traceEvents": events}))
        found = computing.calibrate(operations.read(path))
        assert found.tree["compute"]["fit"]["host"]["factor"] == pytest.approx(factor, rel=0.01)
        taken = found.tree["compute"].get("host", {})
        assert taken == ({"factor": pytest.approx(2, rel=0.01)} if factor == 2.0 else {})


_FACTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["mm", "convolution", "native_layer_norm", "index", "sum", "cat", "topk", "conv_transpose2d"]),
    facts=st.fixed_dictionaries({}, optional={key: _FACTS for key in operations.KEYS}),
    cut=st.integers(0, 300),
)
def test_a_trace_with_anything_in_it_is_read_or_refused(
    tmp_path: Path, name: str, facts: dict[str, Any], cut: int
) -> None:
    document = json.dumps({"traceEvents": launches(1.0, 1, name, [2.0], **facts)})
    path = tmp_path / "any.json"
    for content in (document, document[: -cut - 1]):
        path.write_text(content)
        try:
            for each in operations.of_trace(path).rows:
                assert each.kernels
        except AhbmError:
            pass


def test_two_traces_are_compared_operation_by_operation(tmp_path: Path) -> None:
    """A recording of two steps beside a prediction of one: counts, times and what differs."""
    true = machine({})
    (relu,) = describe("relu", (Tensor((4096, 4096)),))
    facts: list[tuple[str, int | str | Sequence[int]]] = [
        ("num_ops", relu.operations),
        ("tensor_size", relu.nbytes),
        ("num_ops_dtype", relu.arithmetic),
        ("kernel_kind", relu.kind),
        ("kernel_dims", relu.dims),
    ]
    nodes = [("COMP_NODE", name, [], 0, 0, facts) for name in ("relu", "relu", "tanh", "exp")]
    predicted = write_recording(tmp_path / "p", 0, 1, nodes)
    us = takes(true, relu) / 1e6
    events: list[dict[str, Any]] = []
    for name, each in (("relu", us), ("relu", us), ("tanh", 2 * us), ("sqrt", us)) * 2:
        number = len(events) + 1
        events += launches(10.0 * number, number, name, [each], **stated((4096, 4096)))
    (tmp_path / "r.json").write_text(json.dumps({"traceEvents": events}))
    (tmp_path / "m.yaml").write_text(text(templates.alone(named("A100"))))
    given = ["compare", "r.json", str(predicted), "-t", "m.yaml"]
    code, out, err = run("ahbm", [*given, "--json"], tmp_path)
    assert code == 0, err
    told = json.loads(out)
    assert told["steps"] == [2, 1]
    rows = {row["operation"]: row for row in told["operations"]}
    assert {name: row["cause"] for name, row in rows.items()} == {
        "clamp_min": "same",
        "tanh": "time",
        "exp": "only second",
        "sqrt": "only first",
    }
    assert rows["clamp_min"]["kernels"] == [2, 2] and rows["tanh"]["more_us"] == pytest.approx(-us, rel=1e-3)
    code, out, err = run("ahbm", given, tmp_path)
    assert code == 0 and "r.json has 2 steps for 1 of p.0.et" in out
    run("ahbm", ["run", str(predicted), "-t", "m.yaml", "--trace", "written.json"], tmp_path)
    code, out, err = run("ahbm", ["compare", "written.json", *given[2:], "--json"], tmp_path)
    assert code == 0, err
    assert {row["cause"] for row in json.loads(out)["operations"]} == {"same"} and json.loads(out)["steps"] == [1, 1]
