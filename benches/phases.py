"""What a user waits for, phase by phase: one call of `ahbm.run` in a fresh process, with its bound.

`make bench` prints the table. Each row is a process of its own. `import` and `machine` come before the call; `capture`
calls the kernel for all ranks, `build` makes the program, `simulate` finds its times, `data` moves the numbers and
compares them with NumPy's, `bound` is the least time of any algorithm, and `report` all the rest. Cases named "with
data" move some. `total` is wall time from the start of Python's main module. The last columns are
messages per second of the whole call as ratios to those of SimPy and of SimGrid on the traffic of a ring
(`benches/peers`), which are the simulation alone. SimGrid is looked for in the system's Python too, where Debian's
`python3-simgrid` puts it.

`python benches/phases.py [CASE ...] [--json] [--plot FILE.svg]`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIPS = "system.sips.count"
GRID = {SIPS: 1024, "system.sips.w": 32, "system.sips.h": 32}
PEERS = ("SimPy", "SimGrid")
PHASES = ("import", "machine", "capture", "build", "simulate", "data", "bound", "report")

CASES: dict[str, tuple[str, str, dict[str, int], str, int]] = {
    "default machine, with data": ("all_reduce", "default", {}, "lrab_hierarchical_allreduce", 1 << 20),
    "ring, 64, with data": ("all_reduce", "npu_ring_8", {SIPS: 64}, "ring_allreduce", 1 << 20),
    "ring, 64": ("all_reduce", "npu_ring_8", {SIPS: 64}, "ring_allreduce", 1 << 20),
    "ring, 1,024": ("all_reduce", "npu_ring_8", {SIPS: 1024}, "ring_allreduce", 1 << 20),
    "tree, 1,024": ("all_reduce", "npu_ring_8", {SIPS: 1024}, "tree_allreduce", 1 << 20),
    "all_gather, 32 x 32 torus": ("all_gather", "npu_torus_4x4", GRID, "ring_all_gather", 1 << 20),
    "lrab, 1,024 x 16 cubes": ("all_reduce", "default", {SIPS: 1024}, "lrab_hierarchical_allreduce", 1 << 16),
    "doubling, 65,536": ("all_reduce", "npu_hypercube_16", {SIPS: 1 << 16}, "recursive_doubling_allreduce", 1 << 16),
    "tree, 1,048,576": ("all_reduce", "npu_hypercube_16", {SIPS: 1 << 20}, "tree_allreduce", 1 << 16),
}


class Clock:
    """Seconds of phases; one that runs inside another does not count for it."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        self._open: list[str] = []
        self._since = time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.spent[self._open[-1]] += now - self._since
        self._since = now

    def begin(self, phase: str) -> None:
        """Everything up to the matching `end` is of this phase."""
        self._turn()
        self._open.append(phase)

    def end(self) -> None:
        """The phase that began last is over."""
        self._turn()
        self._open.pop()

    def around(self, owner: Any, name: str, phase: str) -> None:
        """Calls of a function are of this phase."""
        inner = getattr(owner, name)

        def timed(*given: Any, **named: Any) -> Any:
            self.begin(phase)
            try:
                return inner(*given, **named)
            finally:
                self.end()

        setattr(owner, name, timed)


def measured(case: str) -> dict[str, Any]:
    """One call, in this process."""
    import resource

    collective, topology, overrides, algorithm, nbytes = CASES[case]
    clock = Clock()
    clock.begin("import")
    start = time.perf_counter()
    import ahbm
    from ahbm import _core
    from ahbm.check.case import Case
    from ahbm.check.reference import Reference
    from ahbm.core.compiled import Compiled
    from ahbm.core.emulator import Emulator
    from ahbm.runs import measure
    from ahbm.source import module

    clock.end()

    class Builder:
        """The native builder, whose calls are phases."""

        def __init__(self, *given: Any, **named: Any) -> None:
            self._inner = _core.ProgramBuilder(*given, **named)

        def __getattr__(self, name: str) -> Any:
            inner = getattr(self._inner, name)
            if not callable(inner):
                return inner

            def timed(*given: Any, **named: Any) -> Any:
                clock.begin("capture" if name.startswith("capture") else "build")
                try:
                    return inner(*given, **named)
                finally:
                    clock.end()

            return timed

    module.ProgramBuilder = Builder  # type: ignore[assignment,misc]
    clock.around(Emulator, "load", "machine")
    clock.around(Compiled, "timeline", "simulate")
    clock.around(Case, "execute", "data")
    clock.around(measure, "inputs", "data")
    clock.around(measure, "Reference", "data")
    clock.around(Reference, "wrong", "data")
    clock.begin("report")
    report = ahbm.run(
        collective,
        algorithm=algorithm,
        topology=topology,
        overrides=overrides,
        bytes_per_rank=nbytes,
        data="with data" in case,
    )
    clock.begin("bound")
    bound = report.bound_ns
    clock.end()
    str(report)
    clock.end()
    total = time.perf_counter() - start
    return {
        "case": case,
        **{phase: round(seconds, 4) for phase, seconds in clock.spent.items()},
        "total": round(total, 4),
        "messages": report.messages,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "latency_ns": report.latency_ns,
        "bound_ns": bound,
    }


def main() -> None:
    """Prints the table, or with --json a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each case")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw the phases of all cases, too")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(measured(asked.cases[0])))
        return
    peers: dict[str, float] = {}
    if not asked.json:
        peers = {name: found for name in PEERS if (found := peer(name))}
        for name in PEERS:
            message = f"{peers[name]:,.0f} messages/s, simulation alone" if name in peers else "not installed: no ratio"
            print(f"{name}: {message}")
        names = "".join(f"{phase:>10}" for phase in (*PHASES, "total"))
        ratios = "".join(f"{f'x {name}':>11}" for name in peers)
        print(f"{'seconds of wall time':<28}{names}{'peak MB':>9}{'messages':>12}{'M msg/s':>9}{ratios}")
    drawn = []
    for case in asked.cases or CASES:
        command = [sys.executable, __file__, "--here", case]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        drawn.append(found)
        if asked.json:
            print(json.dumps(found))
            continue
        rate = found["messages"] / found["total"]
        times = "".join(f"{found[phase]:>10.3f}" for phase in (*PHASES, "total"))
        ratios = "".join(f"{rate / peer:>11.1f}" for peer in peers.values())
        print(f"{case:<28}{times}{found['peak_mb']:>9}{found['messages']:>12,}{rate / 1e6:>9.2f}{ratios}")
    if asked.plot:
        plot(drawn, Path(asked.plot))


def peer(name: str) -> float:
    """Messages per second of a peer's model of a ring of 256 ranks, in the first Python that has the peer; 0: none
    has."""
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        command = [python, f"benches/peers/{name.lower()}_ring.py", "256"]
        try:
            ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        except OSError:
            continue
        if ran.returncode == 0:
            return float(json.loads(ran.stdout)["messages_per_s"])
    return 0.0


def plot(found: list[dict[str, Any]], path: Path) -> None:
    """Draws each case as a bar of its phases, over seconds of wall time."""
    import altair as alt
    import vl_convert

    rows = [{"case": one["case"], "phase": phase, "seconds": one[phase]} for one in found for phase in PHASES]
    chart = (
        alt.Chart(alt.Data(values=rows), width=560)
        .mark_bar()
        .encode(
            alt.X("seconds:Q", title="seconds of wall time, from the import on"),
            alt.Y("case:N", title=None, sort=[one["case"] for one in found], axis=alt.Axis(labelLimit=240)),
            alt.Color("phase:N", sort=list(PHASES), scale=alt.Scale(domain=list(PHASES), scheme="tableau10")),
            alt.Order("position:Q"),
        )
        .transform_calculate(position=f"indexof({json.dumps(PHASES)}, datum.phase)")
    )
    path.write_text(vl_convert.vegalite_to_svg(chart.to_dict()))


if __name__ == "__main__":
    main()
