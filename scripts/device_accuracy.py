"""Writes docs/device.md's table: measured training steps, and what `--fake` says of them.

    python scripts/device_accuracy.py FOLDER [CASE ...]
    python scripts/device_accuracy.py --left-out FOLDER
    python scripts/device_accuracy.py TABLE ...

FOLDER has `train.py CASE` and `steps.csv`, with the columns `case`, `machine`, `step_ms`, `step_min_ms`, `step_max_ms`,
`gpu_busy_ms`, `kernels` and `peak_mib`. A case runs on the packaged machine of its GPU, as a user runs it. With names
of cases, or of a folder's cases that are not all, the table is printed and not written.

With `--left-out`, each case of an H200 runs on a machine whose kernels were fitted without it: to `traces/CASE.json.gz`
of the other cases, and to the products of `microbenchmarks.json`. Cases whose traces state no operands are left out.

TABLE is one of measured kernels, as `ahbm calibrate` reads: per accelerator and operation, it prints how far the
machine of the accelerator's data sheet alone is off.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/device.md"
BEGIN, END = "<!-- cases -->", "<!-- end of cases -->"
MACHINES = {"H200": "dgx_h200", "H100": "dgx_h100", "A100": "azure_nd_a100"}
"""The packaged machine of a GPU."""
LIMIT_S = 600
STEPS = 4
LAUNCH_US = 45
"""Products that take less were measured as their host issues them."""


@dataclass(frozen=True)
class Case:
    """A measured case, and what was predicted of it."""

    name: str
    machine: str
    measured: dict[str, str]
    answer: dict[str, object] | None
    """`answer.json`; None where the run failed."""
    error: str
    seconds: float

    def predicted(self, what: str) -> float:
        """The device's busy time or the step in ms, the kernels of a step, or MiB at most."""
        facts: dict[str, object] = self.answer or {}
        if what == "busy":
            found: object = facts["compute_ns"]
            return float(max(found)) / 1e6 if isinstance(found, list) else math.nan
        if what == "step":
            return float(f"{facts['step_ns']}") / 1e6
        if what == "kernels":
            return float(f"{facts['kernels']}")
        peaks = facts["memory_peak_bytes"]
        return float(max(peaks)) / 2**20 if isinstance(peaks, list) else math.nan

    def ratio(self, what: str) -> float:
        """Predicted by measured."""
        column = {"busy": "gpu_busy_ms", "step": "step_ms", "kernels": "kernels", "memory": "peak_mib"}[what]
        return self.predicted(what) / float(self.measured[column])

    @property
    def inside(self) -> bool:
        """Whether the measured step is inside the range that was said."""
        said: Any = (self.answer or {}).get("step_range_ns", (0, 0))
        least, most = said
        return bool(least <= 1e6 * float(self.measured["step_ms"]) <= most)


def tried(folder: Path, row: dict[str, str], machine: str | None = None) -> Case:
    """Runs a case under `--fake`, on the packaged machine of its GPU or on another."""
    machine = machine or MACHINES[row["machine"]]
    with tempfile.TemporaryDirectory() as place:
        env = os.environ | {"AHBM_PAGE": "0", "AHBM_REPORT": place, "AHBM_TOPOLOGY": machine}
        command = [sys.executable, "-m", "ahbm.torch", "--device", "cuda", "--ranks", "1", "--fake"]
        command += [str(folder / "train.py"), row["case"], str(STEPS)]
        before = os.times()
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL
        )
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        answer = Path(place, "answer.json")
        if done.returncode or not answer.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            return Case(row["case"], machine, row, None, lines[-1][:120] if lines else "no answer", spent)
        return Case(row["case"], machine, row, json.loads(answer.read_text("utf-8")), "", spent)


def off(ratios: Sequence[float]) -> list[float]:
    """Errors in percent, of the larger by the smaller."""
    return [100 * (max(ratio, 1 / ratio) - 1) for ratio in ratios]


def line(case: Case) -> str:
    """A row of the table."""
    if case.answer is None:
        return f"| `{case.name}` | {case.measured['machine']} | {case.error} | | | | |"
    measured = case.measured
    cells = [
        f"{float(measured['gpu_busy_ms']):.2f} / {case.predicted('busy'):.2f} ({case.ratio('busy'):.2f})",
        f"{float(measured['step_ms']):.2f} / {case.predicted('step'):.2f} ({case.ratio('step'):.2f})",
        "yes" if case.inside else "no",
        f"{float(measured['kernels']):.0f} / {case.predicted('kernels'):.0f} ({case.ratio('kernels'):.2f})",
        f"{case.ratio('memory'):.3f}",
    ]
    return f"| `{case.name}` | {measured['machine']} | " + " | ".join(cells) + " |"


def summary(cases: Sequence[Case]) -> list[str]:
    """The medians."""
    found = [case for case in cases if case.answer is not None]
    lines = [f"{len(found)} of {len(cases)} cases ran."]
    for what, name in (("busy", "device busy"), ("step", "step"), ("kernels", "kernels"), ("memory", "peak memory")):
        errors = off([case.ratio(what) for case in found])
        within = sum(error <= 20 for error in errors)
        lines.append(
            f"{name}: off by {statistics.median(errors):.1f} % in the median, {max(errors):.1f} % at most; "
            f"{within} of {len(errors)} within 20 %."
        )
    lines.append(f"measured step inside the range: {sum(case.inside for case in found)} of {len(found)}.")
    return lines


def sheets(tables: Sequence[str]) -> int:
    """Prints how far data sheets alone are off at tables of kernels."""
    from ahbm._core import Machine
    from ahbm.calibrate import templates
    from ahbm.calibrate.accelerators import known
    from ahbm.calibrate.readers.operations import Measured, of_table
    from ahbm.calibrate.written import text

    found: dict[str, list[Measured]] = {}
    for table in tables:
        for each in of_table(table):
            found.setdefault(each.device, []).extend(each.rows)
    print(
        "| accelerator | operation | kernels | median % | 9 of 10 % | predicted / measured |",
        "|---" * 6 + "|",
        sep="\n",
    )
    for device, rows in found.items():
        facts = known(device)
        if facts is None or facts.compute() is None:
            print(f"| {device} | no data sheet | {len(rows)} | | | |")
            continue
        machine = Machine.from_yaml(text(templates.alone(facts) | {"compute": facts.compute()}), "sheet", [])
        ratios: dict[str, list[float]] = {}
        for row in rows:
            kernels = [(one.kind, one.dims, one.operations, one.nbytes, one.arithmetic, False) for one in row.kernels]
            ratio = sum(machine.kernels_ps(kernels)) / 1e6 / row.us
            for name in ("all", row.name):
                ratios.setdefault(name, []).append(ratio)
        for name, of in ratios.items():
            errors = sorted(100 * abs(ratio - 1) for ratio in of)
            cells = (len(of), f"{statistics.median(errors):.1f}", f"{errors[int(0.9 * len(errors))]:.0f}")
            print(f"| {device} | {name} | {' | '.join(map(str, cells))} | {statistics.median(of):.2f} |")
    return 0


def products(path: Path, device: str) -> Any:
    """The measured products of a GPU that take longer than their launch, as a trace's operations are read."""
    from ahbm.calibrate.readers.operations import Measured, Operations
    from ahbm.kernels import Flags, Tensor, describe

    rows = []
    for dtype, m, n, k, us in json.loads(path.read_text("utf-8"))[device]["ceilings"]["gemm_us"]:
        name = "float32" if dtype == "tf32" else dtype.removeprefix("torch.")
        if us > LAUNCH_US and name in ("bfloat16", "float16", "float32"):
            flags = Flags(tf32_products=dtype == "tf32")
            given = (Tensor((m, k), name, (k, 1)), Tensor((k, n), name, (n, 1)))
            rows.append(Measured("mm", tuple(describe("mm", given, flags=flags)), us))
    return Operations(path.name, "", f"NVIDIA {device}", None, tuple(rows))


def left_out(folder: Path) -> int:
    """Prints how far each case is off on a machine that was fitted without it."""
    from ahbm.calibrate import computing
    from ahbm.calibrate.readers.operations import of_trace
    from ahbm.calibrate.written import text
    from ahbm.errors import FormatError

    with (folder / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["case"]: row for row in csv.DictReader(file) if row["machine"] == "H200"}
    traces = {}
    for name in rows:
        try:
            traces[name] = of_trace(folder / "traces" / f"{name}.json.gz")
        except FormatError as error:
            print(f"{name}: {error}".splitlines()[0], file=sys.stderr)
    measured = products(folder / "microbenchmarks.json", "H200")
    cases = []
    with tempfile.TemporaryDirectory() as place:
        for name in traces:
            others = [trace for other, trace in traces.items() if other != name]
            machine = Path(place, f"{name}.yaml")
            machine.write_text(text(computing.calibrate([*others, measured], MACHINES["H200"]).tree), encoding="utf-8")
            cases.append(tried(folder, rows[name], str(machine)))
            print(line(cases[-1]), flush=True)
    print(*summary(cases), sep="\n")
    return 0


def main() -> int:
    """Runs what was asked for."""
    if sys.argv[1:2] == ["--left-out"] and len(sys.argv) == 3:
        return left_out(Path(sys.argv[2]).resolve())
    if sys.argv[1:] and all(Path(each).is_file() for each in sys.argv[1:]):
        return sheets(sys.argv[1:])
    if len(sys.argv) < 2 or not Path(sys.argv[1], "steps.csv").exists():
        print("name a folder with steps.csv and train.py", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).resolve()
    with (folder / "steps.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = [row for row in rows if not sys.argv[2:] or row["case"] in sys.argv[2:]]
    head = "| case | GPU | device busy, ms | step, ms | inside | kernels | memory |"
    print(head, "|---" * 7 + "|", sep="\n", flush=True)
    cases = []
    for row in wanted:
        cases.append(tried(folder, row))
        print(line(cases[-1]), flush=True)
    text = [head, "|---" * 7 + "|", *map(line, cases), "", *summary(cases)]
    spent = sum(case.seconds for case in cases)
    print(*summary(cases), f"{spent:.0f} s of processor time.", sep="\n")
    if len(wanted) == len(rows) and PAGE.exists():
        page = PAGE.read_text(encoding="utf-8")
        table = BEGIN + "\n" + "\n".join(text) + "\n" + END
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: table, page, flags=re.DOTALL), encoding="utf-8")
    return 0 if all(case.answer is not None for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
