"""The files that a tuning writes for the libraries, each read back and judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ahbm.base.rules import Rule, Rules
from ahbm.base.store import make_folders, store, writing
from ahbm.choose.card import ALONE, Card
from ahbm.choose.evaluation import Evaluation, beside, judge
from ahbm.choose.formats import ccl, mscclpp, nccl, nccl_sweep, ncclx, ucc
from ahbm.choose.formats.format import Format
from ahbm.choose.formats.nccl_sweep import Measured
from ahbm.choose.names import NCCL
from ahbm.choose.tune import Tuned
from ahbm.choose.written import folder_of
from ahbm.choose.written import plans as written_plans
from ahbm.config.ccl import CclConfig
from ahbm.runs import knobs

LIBRARIES: tuple[Format, ...] = (nccl.FORMAT, ncclx.CSV, ncclx.JSON, mscclpp.FORMAT, ucc.FORMAT)
"""The formats of tables, in the order in which they are written."""


BARE = ("NCCL's example plugin gives one channel to a call without a line, so that it harms where there is none.",)


def save(tuned: Tuned, folder: str | Path, jobs: int | None = None) -> Card:
    """Writes the files of a tuning into a folder: ccl.yaml, those of `LIBRARIES` and NCCL's sweep where a library has
    algorithms of the collective, MSCCL-IR files of the ranges that NCCL cannot run, and card.md and card.json.

    jobs: processes that run the plans once more, as they are written.

    The plans that an earlier tuning of the collective has left there are removed.

    Raises FormatError (AHBM-F102) for what cannot be written.
    """
    folder = Path(folder)
    with writing(folder):
        make_folders(folder)
    rules, missing = _tables(tuned)
    catalogue = tuned.table.catalogue
    config = CclConfig.load(catalogue.ccl, catalogue.overrides)
    named = dict.fromkeys(rule.algorithm for rule in tuned.rules)
    entries = {name: config.entry(name) for name in named}
    texts: dict[str, str] = {}
    evaluations: dict[str, Evaluation] = {}
    for format in (ccl.FORMAT, *LIBRARIES):
        if format is ccl.FORMAT:
            write = partial(ccl.document, tuned.rules, entries)
        elif format.file in rules:
            write = partial(format.write, rules[format.file])
        else:
            continue
        # A file says of itself what its reader finds.
        read = format.read(write([]), format.file)
        judged = judge(format.file, read, tuned.table, tuned.given.nodes, tuned.turning, tuned.fitted)
        evaluations[format.file] = judged
        texts[format.file] = write(_notes(tuned, judged))
    measured = list(_measured(tuned))
    if measured:
        texts[nccl_sweep.FORMAT.file] = nccl_sweep.text(measured)
    _store({folder / name: text for name, text in texts.items()})
    plans, refused = written_plans(tuned, folder, config)
    evaluations |= _judged_plans(tuned, folder, plans, jobs)
    files = [*(folder / name for name in texts), *(folder / name for name in plans)]
    files += [path for path in (knobs.beside(file) for file in files if file.suffix == ".xml") if path.exists()]
    card = Card(
        tuned,
        (*files, folder / "card.md", folder / "card.json"),
        evaluations,
        missing | refused,
        plans,
    )
    _store(
        {
            folder / "card.md": "\n".join(card.lines()) + "\n",
            folder / "card.json": json.dumps(card.to_json(), indent=2) + "\n",
        }
    )
    return card


def _judged_plans(tuned: Tuned, folder: Path, plans: Mapping[str, Rule], jobs: int | None) -> dict[str, Evaluation]:
    """What the plans of each machine lose on it: run as they are written, at the tuned sizes that they divide."""
    names = {name.rpartition("/")[0] for name in plans}
    found = {}
    for name in tuned.table.machines:
        if (own := folder_of(name)) in names:
            table = tuned.table.only(lambda point: point.machine == name)  # noqa: B023
            found[own] = replace(beside(folder / own, table, jobs), file=own)
    return found


def _store(texts: Mapping[Path, str]) -> None:
    with writing(next(iter(texts)).parent):
        store({path: text.encode() for path, text in texts.items()})


def _notes(tuned: Tuned, judged: Evaluation) -> list[str]:
    machines, regret = ", ".join(tuned.table.machines), judged.regret
    first = f"{tuned.collective} of {tuned.dtype} on {machines}"
    if judged.read.library is NCCL and tuned.fitted:
        if not judged.read.rules:
            return [f"{first}: {ALONE} Load no tuner plugin with this file: it has no line.", *BARE]
        return [f"{first}, of which NCCL was measured.", *judged.beside()]
    return [
        f"{first}; simulated.",
        f"Against the quickest of all algorithms at the tuned sizes, this file loses {regret.mean:.2%} on the average, "
        f"at most {regret.p95:.2%} at 95 in 100.",
    ]


def _tables(tuned: Tuned) -> tuple[dict[str, Rules], dict[str, str]]:
    """The rules of each library's file, and why there are none."""
    found: dict[str, Rules] = {}
    missing: dict[str, str] = {}
    for format in LIBRARIES:
        rules = tuned.of(format.library)
        if not rules and not (format.library is NCCL and tuned.lets_nccl_be):
            missing[format.file] = f"{format.library.name} can run none of these algorithms for {tuned.collective}"
            continue
        found[format.file] = rules
    return found, missing


def _measured(tuned: Tuned) -> Iterator[Measured]:
    """Per number of ranks and size, the mean time over the machines of each algorithm of NCCL under its knobs."""
    times: dict[tuple[int, int, int, str, str, int], list[int]] = {}
    for point in tuned.table.points():
        for named, ps in tuned.timed(NCCL, point).items():
            assert named.protocol is not None, "NCCL's lines name one"
            row = (point.ranks, tuned.nodes(point), point.nbytes, named.name, named.protocol, named.channels or 0)
            times.setdefault(row, []).append(ps)
    for (ranks, nodes, nbytes, theirs, protocol, channels), found in times.items():
        mean_us = sum(found) / len(found) / 1e6
        yield Measured(tuned.collective, nbytes, theirs, protocol, channels, ranks, mean_us, nodes=nodes)
