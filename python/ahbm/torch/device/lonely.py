"""The answer of one rank that stands for many: see `ahbm.torch.alone`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from ahbm.base.words import aligned
from ahbm.torch import report
from ahbm.torch.device import marks, module
from ahbm.torch.device.answer import draw, keep
from ahbm.torch.device.meter import meter
from ahbm.torch.device.single import Schedule, schedule
from ahbm.torch.device.wider import wider

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.setup import Setup
    from ahbm.torch.journal import Event


@dataclass
class Lonely:
    """Answers for `ranks` ranks by the journal of one."""

    emulator: Emulator
    setup: Setup
    rank: int
    ranks: int
    done: bool = False

    def left(self) -> None:
        """The rank leaves its world."""
        lanes, meter.lanes = meter.lanes, None
        if self.done or lanes is None:
            return
        self.done = True
        steps = lanes.settle()
        events, per = lanes.events, max(steps, 1)
        operations, memory, launch, *_ = self.emulator.machine.roofline
        takes = self._calls(self.emulator)

        def run(ops: float, mem: float, calls: Callable[[Any], int]) -> Schedule:
            def cost(event: Event) -> int:
                if event.kind != "COMP_NODE":
                    return calls(lanes.requests[event])
                work = max(event.facts["num_ops"] / ops, event.facts["tensor_size"] / mem)  # type: ignore[operator]
                return ceil(work * 1000) + launch

            return schedule(events, cost)

        found = run(operations, memory, takes)
        changes = [
            ("twice the peak of arithmetic", run(2 * operations, memory, takes).total),
            ("twice the bandwidth of the memory", run(operations, 2 * memory, takes).total),
        ]
        calls = (
            self.emulator.compile(request, self.setup.algorithm_for(request, self.emulator))
            for request in lanes.requests.values()
        )
        what, both = wider(self.emulator.machine, (made.program for made in calls))
        quicker = self._calls(self.emulator.on(self.emulator.machine.changed(tuple(both.items()))))
        changes.append((what, run(operations, memory, quicker).total))
        changes.sort(key=lambda change: (change[1], change[0]))
        self._tell(found, changes, events, lanes.requests, takes, steps, per)

    def _calls(self, emulator: Emulator) -> Callable[[Any], int]:
        def takes(request: Any) -> int:
            latency: int = emulator.compile(request, self.setup.algorithm_for(request, emulator)).latency_ps
            return latency

        return takes

    def _tell(
        self,
        found: Schedule,
        changes: list[tuple[str, int]],
        events: list[Event],
        requests: Any,
        takes: Callable[[Any], int],
        steps: int,
        per: int,
    ) -> None:
        rows: dict[str, list[Any]] = {}
        for event in events:
            if event.kind != "COMP_NODE":
                row = rows.setdefault(event.name, [0, 0, 0, {}])
                row[0] += 1
                row[1] += takes(requests[event])
                row[2] += found.exposed.get(event.number, 0)
                row[3][self.emulator.compile(requests[event]).algorithm] = None

        def us(ps: float) -> str:
            return f"{ps / per / 1e6:,.2f}"

        peak = marks.memory_of(marks.current()).peak
        exposed = found.total - found.computing
        share = 100 / found.total if found.total else 0.0
        what = f"a step (mean of {steps})" if steps else "the job"
        machine = self.emulator.machine
        lines = [
            f"ahbm: {what} takes {us(found.total)} us on {self.ranks} ranks like this one of a {machine.topology}: "
            f"computing {us(found.computing)} us ({found.computing * share:.1f} %), exposed communication "
            f"{us(exposed)} us ({exposed * share:.1f} %); memory {peak / 2**30:.3f} of "
            f"{module.capacity() / 2**30:,.0f} GiB"
        ]
        cells: list[tuple[str, ...]] = [("line", "collective", "calls", "takes (us)", "exposed (us)", "by")]
        figures: list[dict[str, object]] = []
        for name, (calls, took, hidden, by) in sorted(rows.items(), key=lambda row: (-row[1][2], -row[1][1], row[0])):
            collective, _, line = name.partition(" ")
            cells.append((line, collective, f"{calls / per:g}", us(took), us(hidden), ", ".join(by)))
            times = {"time_ns": took / per / 1000, "exposed_ns": hidden / per / 1000}
            figures.append(
                {"line": line, "collective": collective, "calls": calls / per, **times, "algorithm": cells[-1][-1]}
            )
        if len(cells) > 1:
            lines += aligned(cells)
        for what, total in changes:
            if total < found.total:
                lines.append(f"with {what}: {us(total)} us (-{100 * (1 - total / found.total):.1f} %)")
        print("\n".join(lines), file=sys.stderr)
        if (folder := report.target()) is not None:
            facts = {
                "steps": steps,
                "step_ns": found.total / per / 1000,
                "compute_ns": found.computing / per / 1000,
                "exposed_ns": exposed / per / 1000,
                "memory_peak_bytes": peak,
                "lines": figures,
                "changes": [{"what": what, "step_ns": total / per / 1000} for what, total in changes],
            }
            told = lines[0].removeprefix("ahbm: ")
            answer = {**facts, "memory_peak_bytes": [peak], "best": None}
            title = f"a step of {self.ranks} ranks like rank {self.rank} on {machine.topology}"
            with report.saving():
                keep(folder, "\n".join(lines), facts)
                drawn = {"job": None, "title": title, "answer": answer, "told": told, "capacity": module.capacity()}
                draw(folder, drawn)
