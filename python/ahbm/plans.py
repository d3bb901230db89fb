"""Plans: algorithms that are files of other projects instead of kernels (`algorithms.<name>.plan` in ccl.yaml,
`ahbm run FILE`).

A plan works on whole arrays: rank r's operand and result stand in the memory of SIP r, and are one memory where the
plan runs in place. `docs/imports.md` tells what is supported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ahbm import measure
from ahbm._core import Machine, convert_plan
from ahbm.config import SLOTS, UNBOUNDED
from ahbm.errors import ConfigError
from ahbm.lowering import runnable
from ahbm.reading import PLAIN, Reading

if TYPE_CHECKING:
    from ahbm.config import Settings
    from ahbm.measure import Arguments
    from ahbm.report import Report
    from ahbm.verify import Case


@dataclass(frozen=True)
class Options:
    """How the plan in a file runs; in ccl.yaml, keys beside `plan:`."""

    slots: int | None = SLOTS
    """Messages a queue holds; None for no bound."""
    protocol: str | None = None
    """"Simple", "LL" or "LL128" instead of the plan's own."""
    instances: int = 1
    """Parallel copies of the plan, each on its share of every chunk."""
    slice_bytes: int | None = None
    """Size of the largest message instead of the protocol's."""
    reading: Reading = PLAIN

    def over(self, settings: Settings) -> Settings:
        """`settings` with these options."""
        depth = UNBOUNDED if self.slots is None else self.slots
        return replace(
            settings,
            n_slots=depth,
            protocol=self.protocol,
            instances=self.instances,
            slice_bytes=self.slice_bytes,
            reading=self.reading,
        )

    def entry(self) -> dict[str, object]:
        """The keys of an entry of ccl.yaml."""
        found: dict[str, object] = {
            "n_slots": UNBOUNDED if self.slots is None else self.slots,
            "instances": self.instances,
            "protocol": self.protocol,
            "slice_bytes": self.slice_bytes,
        }
        return {key: value for key, value in found.items() if value is not None} | self.reading.entry()


def prepare(
    file: str | Path,
    topology: str | Path | Machine | None = None,
    options: Options = Options(),
    **arguments: Unpack[Arguments],
) -> Case:
    """The plan in `file` on the SIPs of its ranks, as a case to measure, like `ahbm.measure.prepare`.

    Its root is the plan's. Raises ConfigError (AHBM-C146) without a size, UnsupportedError: AHBM-U233 for a trace
    without buffers, AHBM-U113 for a plan whose collective has no known result (both run for their time with
    `ahbm.timed.run`); and as `ahbm.measure.prepare`.
    """
    plan = runnable(file, options.reading)
    if arguments.get("bytes_per_rank") is None:
        raise ConfigError("AHBM-C146", f"{file} runs at some size", hint="--size 1M")
    name = label(file)
    entry = {"plan": str(Path(file).absolute()), "world_size": plan.ranks} | options.entry()
    settings = {f"algorithms.{name}.{key}": value for key, value in entry.items()}
    arguments["overrides"] = {**(arguments.get("overrides") or {}), **settings}
    arguments["root"] = plan.root or 0
    return measure.prepare(plan.collective, name, topology, **arguments)


def run(
    file: str | Path,
    topology: str | Path | Machine | None = None,
    options: Options = Options(),
    *,
    data: bool = True,
    check: bool | str = False,
    **arguments: Unpack[Arguments],
) -> Report:
    """Runs the plan in `file` once and reports it: `prepare`, then `ahbm.measure.measure`. Raises what these raise."""
    return measure.measure(prepare(file, topology, options, **arguments), data=data, check=check)


def convert(
    source: str | Path,
    target: str | Path,
    *,
    nbytes: int | None = None,
    link_order: bool = False,
    slots: int = SLOTS,
    quirks: bool = False,
    limits: Sequence[tuple[str, int]] = (),
) -> list[Path]:
    """Writes the algorithm in `source` as what the name of `target` says: .xml, .json, or the prefix of a trace, .et.

    nbytes: the size, of the larger of operand and result, by which a trace states its `comm_size`; about 1 MiB.
    link_order: orders the sends of every link of a trace by control dependencies. slots: messages that the queues of an
    execution plan hold. quirks, limits: as in `ahbm.check.Settings`. Returns the files that were written; after an
    error there are none.

    Raises FormatError, BudgetError, and UnsupportedError (AHBM-U292) for what the format of `target` cannot express.
    """
    return convert_plan(source, target, nbytes=nbytes, link_order=link_order, slots=slots, quirks=quirks, limits=limits)


def label(file: str | Path) -> str:
    """Name of what is in a file: of `ring.xml`, `ring.et`, `ring.3.et` and `ring.3.json` it is `ring`."""
    return re.sub(r"((\.\d+)?\.(et|json)|\.xml)$", "", Path(file).name).replace(".", "_")
