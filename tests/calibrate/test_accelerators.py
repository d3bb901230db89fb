"""Accelerators: the packaged machines and the templates of a calibration compute by the data sheets of one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import ahbm
from ahbm._core import Machine
from ahbm.base import packaged
from ahbm.calibrate import accelerators, calibration, tables, templates, written
from ahbm.config.topology import load_machine, names
from ahbm.errors import ConfigError
from ahbm.kernels import Flags, Tensor, describe

OF = {
    "a3mega_2_nodes": "H100 SXM",
    "azure_nd_a100": "A100 80 GB SXM",
    "azure_nd_h100": "H100 SXM",
    "b200_2_nodes": "B200 SXM",
    "dgx_a100_2_nodes": "A100 40 GB",
    "dgx_b300": "B300 SXM",
    "dgx_h100": "H100 SXM",
    "dgx_h200": "H200 SXM",
    "gb200_nvl72": "GB200",
    "h100_2_nodes": "H100 SXM",
    "mi300x": "MI300X",
    "mi300x_2_nodes": "MI300X",
    "p4de_2_nodes": "A100 80 GB SXM",
    "p5": "H100 SXM",
    "p5_2_nodes": "H100 SXM",
    "polaris": "A100 40 GB",
    "polaris_8_nodes": "A100 40 GB",
    "polaris_n_nodes": "A100 40 GB",
    "tpu_v4_4x4x4": "TPU v4",
    "tpu_v5p_4x4x4": "TPU v5p",
    "wafer_mesh_16x16": "a core of a wafer-scale engine",
}
SHEETS = {each.name: each for each in accelerators.ACCELERATORS.values()}


@pytest.mark.parametrize("name", [name for name in names() if name != "reference_torus"])
def test_every_packaged_machine_computes_by_the_sheet_that_it_names(name: str) -> None:
    tree = yaml.safe_load((packaged.TOPOLOGIES / f"{name}.yaml").read_text("utf-8"))
    own = tree["pe"]["roofline"]
    assert own["accelerator"] == OF.get(name, "A100 80 GB SXM")
    sheet = SHEETS[own["accelerator"]]
    assert own == sheet.roofline() and sheet.source
    assert tree.get("compute") in (None, sheet.compute())
    assert load_machine(name).sheet == (sheet.name, sheet.source)
    if name in OF and not name.startswith("wafer"):
        assert tree["cube"]["memory_map"]["hbm_total_gb"] == sheet.memory_gb


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB PCIe"),
        ("A100", "A100 80 GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("H100 PCIe", "H100 PCIe"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H200", "H200 SXM"),
        ("GB200", "GB200"),
        ("NVIDIA B200", "B200 SXM"),
        ("AMD Instinct MI300X", "MI300X"),
        ("MI355X", "MI355X"),
        ("TPU v5p", "TPU v5p"),
        ("MetaX C500", None),
        ("", None),
    ],
)
def test_an_accelerator_is_known_by_parts_of_its_name(text: str, name: str | None) -> None:
    found = accelerators.known(text)
    assert (found and found.name) == name
    if name is not None:
        assert accelerators.named(name).name == name


def test_the_laws_of_every_chip_are_keys_of_a_machine() -> None:
    for each in SHEETS.values():
        compute = each.compute()
        if compute is not None:
            machine = Machine.from_yaml(written.text(templates.alone(each) | {"compute": compute}), "sheet", [])
            assert machine.compute is not None
            values = machine.compute.values
            laws = {law: keys for law, keys in compute.items() if isinstance(keys, dict) and law != "fit"}
            said = {f"{law}.{key}": number for law, keys in laws.items() for key, number in keys.items()}
            assert {key: values[key] for key in said} == said


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("L4", "bfloat16", 59.4),
        ("L4", "float32", 10.66),
        ("L40S", "float16", 264.0),
        ("L40S", "float32", 46.9),
        ("H100 SXM", "bfloat16", 797.5),
        ("H100 SXM", "float32", 51.8),
        ("H200 SXM", "float32", 51.3),
        ("A100 80 GB SXM", "bfloat16", 264.5),
        ("A100 40 GB PCIe", "float16", 197.5),
    ],
)
def test_large_products_run_at_the_clock_that_power_suffices_for(name: str, dtype: str, tflops: float) -> None:
    """Products of 8,192 rows, or the quickest of several sizes, as users measured them (zzc0721/torch-performance-
    test-data, database.md and issues 79, 108 and 120)."""
    sheet, rows = accelerators.named(name), 8192
    tree = templates.alone(sheet) | {"compute": sheet.compute()}
    operand = Tensor((rows, rows), dtype, (rows, 1))
    kernels = [
        (each.kind, each.dims, each.operations, each.nbytes, each.arithmetic, False)
        for each in describe("mm", (operand, operand), flags=Flags(units=tree["compute"]["units"]))
    ]
    taken = sum(Machine.from_yaml(written.text(tree), "sheet", []).kernels_ps(kernels))
    assert 2 * rows**3 / taken == pytest.approx(tflops, rel=0.09)


def _unknown(tmp_path: Path) -> tables.Table:
    rows = "".join(f"{size},{10 + size / 2e5:.2f}\n" for size in (1 << at for at in range(10, 28)))
    file = tmp_path / "measured.csv"
    head = "# accelerator: MetaX C500\n# nodes: 1\n# ranks: 8\n# op: all_reduce\n"
    file.write_text(f"{head}bytes,time_us\n{rows}", "utf-8")
    return tables.read(file)


def _job(tmp_path: Path) -> str:
    """1e12 operations, of which nobody says how long they take."""
    work = [{"name": "num_ops", "int64Val": 10**12}, {"name": "tensor_size", "int64Val": 8}]
    node = {"id": 0, "name": "gemm", "type": "COMP_NODE", "attr": work}
    trace = tmp_path / "step.0.json"
    trace.write_text("\n".join(json.dumps(each) for each in ({"version": "0.0.4"}, node)), "utf-8")
    return str(trace)


@pytest.mark.slow
def test_the_machine_of_an_unknown_accelerator_refuses_to_compute(tmp_path: Path) -> None:
    found = calibration.calibrate([_unknown(tmp_path)])
    assert found.tree["pe"]["roofline"] == {"unknown": True}
    assert any("MetaX C500" in note and "--accelerator" in note and "H100 SXM" in note for note in found.notes)
    file = tmp_path / "machine.yaml"
    written.save(found.tree, file)
    # A collective does not ask.
    assert ahbm.run("all_reduce", topology=str(file), bytes_per_rank=1024, data=False).latency_ns > 0
    trace = _job(tmp_path)
    with pytest.raises(ConfigError, match=r"pe\.roofline\.peak_tflops") as refused:
        ahbm.open(trace, topology=str(file)).run()
    assert refused.value.code == "AHBM-C193"
    stated = {"pe.roofline.peak_tflops": 100, "pe.roofline.memory_gbs": 1000}
    assert ahbm.open(trace, topology=str(file), overrides=stated).run().latency_ns == 1e7


@pytest.mark.slow
def test_a_user_names_the_accelerator(tmp_path: Path) -> None:
    found = calibration.calibrate([_unknown(tmp_path)], accelerator="H200")
    assert found.tree["pe"]["roofline"] == SHEETS["H200 SXM"].roofline()
    with pytest.raises(ConfigError, match="no data sheet") as refused:
        templates.of([_unknown(tmp_path)], accelerator="C500")
    assert refused.value.code == "AHBM-C195" and "MI300X" in str(refused.value.hint)


@pytest.mark.parametrize(("topology", "tflops"), [("p5", 989.4), ("dgx_a100_2_nodes", 312.0), ("mi300x", 1307.4)])
def test_a_job_names_the_sheet_that_it_computes_by(topology: str, tflops: float, tmp_path: Path) -> None:
    trace = _job(tmp_path)
    report = ahbm.open(trace, topology=topology).run()
    assert report.latency_ns == pytest.approx(1e9 / tflops, rel=1e-6)
    assert any(note.startswith(f"computations by the data sheet of {OF[topology]}: ") for note in report.notes)
