"""Cases by the digests of what they are, and what a store has of those that ran before."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from ahbm.base.collectives import COLLECTIVES
from ahbm.base.sizes import Resized
from ahbm.choice.configured import candidates
from ahbm.core.emulator import Emulator
from ahbm.core.spec import machine_name, runs_by
from ahbm.errors import AhbmError, ConfigError, Finding
from ahbm.runs.report import Report
from ahbm.selectors.loading import contents
from ahbm.source.algorithm import Algorithm
from ahbm.table.build import build
from ahbm.table.cases import Case, Refused, Sweep
from ahbm.table.engine import BATCH_S
from ahbm.table.files import NO_PROOF, Row
from ahbm.table.imported import imported
from ahbm.table.made import row_of
from ahbm.table.store import Store


class Keys:
    """The keys of the cases of one sweep by one algorithm."""

    def __init__(
        self, sweep: Sweep, algorithm: str | None, emulator: Emulator | AhbmError, content: Sequence[object] = ()
    ) -> None:
        """emulator: of the sweep, or why there is none. content: of a job, what it is besides its machine."""
        kind = COLLECTIVES[sweep.collective]
        self._sweep, self._algorithm, self._emulator = sweep, algorithm, emulator
        self._known: dict[tuple[str, ...], str] = {}
        self._common: list[object] = [build(), sweep.collective, sweep.dtype, sweep.data, sweep.check, sweep.device]
        self._common += [sweep.op if kind.reduces else "", sweep.root if kind.rooted else 0, algorithm]
        if isinstance(emulator, Emulator) and (algorithm is None or content):
            self._common += [contents(named) for named in emulator.ccl.selectors()]
        if content:
            self._common += ["job", *content]

    def of(self, nbytes: int, seed: int) -> str:
        """The key of a case."""
        chosen: tuple[str, ...] = (self._algorithm or "",)
        if self._algorithm is None and isinstance(self._emulator, Emulator) and nbytes:
            try:
                world = self._emulator.world_size
                chosen = candidates(self._emulator, self._sweep.collective, nbytes, world)
            except AhbmError as error:
                chosen = (error.code, error.message)
        if chosen not in self._known:
            self._known[chosen] = json.dumps([*self._common, self._facts(chosen)], sort_keys=True, default=str)
        # Without data, numbers are of no meaning.
        numbers = f"{nbytes} {seed if self._sweep.data else 0}"
        return hashlib.sha256(f"{self._known[chosen]} {numbers}".encode()).hexdigest()

    def cases(self, sizes: Sequence[tuple[int, Resized | None]], seeds: Sequence[int], at: int) -> Iterator[Case]:
        """The cases of sizes and seeds, which begin at a position."""
        for number, ((nbytes, resized), seed) in enumerate(product(sizes, seeds), at):
            yield Case(self._sweep, self._algorithm, nbytes, resized, seed, number, self.of(nbytes, seed))

    def _facts(self, algorithms: tuple[str, ...]) -> list[object]:
        sweep, emulator = self._sweep, self._emulator
        if isinstance(emulator, AhbmError):
            return [str(sweep.topology), list(sweep.overrides.items()), emulator.code, emulator.message]
        try:
            named = (sweep.given.get(name, name) for name in algorithms if name)
            found: list[object] = [[*runs_by(emulator, one), *_imported(emulator, one)] for one in named]
            return found or [f"{emulator.machine.hash:016x}"]
        except AhbmError as error:
            return [f"{emulator.machine.hash:016x}", error.code, error.message]


def _imported(emulator: Emulator, algorithm: str | Algorithm) -> list[str]:
    return imported(getattr(emulator.algorithm(algorithm), "path", ""))


def configured(emulator: Emulator) -> list[object]:
    """What ccl.yaml says, and the contents of all its algorithms: a job's calls may run any of them."""
    found: list[object] = []
    for name in emulator.ccl.algorithms:
        try:
            found.append([repr(emulator.algorithm(name).identity), *_imported(emulator, name)])
        except AhbmError as error:
            found.append([name, error.code, error.message])
    return [emulator.ccl.fingerprint, found]


class Kept:
    """What a store has of some cases, each on the emulator beside it; what is added is kept in it."""

    def __init__(self, folder: str | Path, cases: Sequence[tuple[Case, Emulator]]) -> None:
        """Raises ConfigError: AHBM-C141 where the folder cannot be written, C186 where its rows cannot be read."""
        named: dict[tuple[int, str | None], tuple[Keys, Sweep]] = {}
        self._cases: list[Case] = []
        for at, (case, emulator) in enumerate(cases):
            of = id(case.sweep), case.algorithm
            if of not in named:
                sweep = replace(case.sweep, machine=machine_name(emulator.machine))
                named[of] = Keys(case.sweep, case.algorithm, emulator), sweep
            keys, sweep = named[of]
            self._cases.append(replace(case, sweep=sweep, at=at, key=keys.of(case.nbytes, case.seed)))
        self._emulators = [emulator for _, emulator in cases]
        self._store = Store(folder)
        self._space = self._store.begin({"cases": [_words(case) for case in self._cases]})
        self._texts = self._store.cells({case.key for case in self._cases})
        self._new: list[tuple[Case, Row, str]] = []
        self._written = time.monotonic()

    def cell(self, at: int) -> Report | AhbmError | None:
        """What a case gave when it ran before; None where it did not. A report has no spec.

        Raises ConfigError (AHBM-C186) for a row that cannot be read.
        """
        case = self._cases[at]
        text = self._texts.get(case.key)
        if text is None:
            return None
        try:
            found = json.loads(text)
            if found["asked"] != _asked(case, self._emulators[at]):
                return None
            if "error" in found:
                return AhbmError.of([Finding.from_json(finding) for finding in found["error"]["findings"]])
            report = Report.from_json(found["report"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ConfigError("AHBM-C186", f"{self._store.folder} has a row that is none: {error}") from error
        return replace(report, resized=case.resized or report.resized)

    def add(self, at: int, cell: Report | Refused) -> None:
        """Keeps what a case gave. Raises ConfigError (AHBM-C141)."""
        case, emulator = self._cases[at], self._emulators[at]
        found: dict[str, object] = {"asked": _asked(case, emulator)}
        if isinstance(cell, Refused):
            if cell.error.code in NO_PROOF:
                return
            found["error"] = cell.error.to_json()
        else:
            # The sizes that were asked for are not part of the key.
            found["report"] = (replace(cell, resized=None) if case.resized else cell).to_json()
        self._new.append((case, row_of(case, cell, lambda: emulator.machine), json.dumps(found)))
        if time.monotonic() - self._written > BATCH_S:
            self.write()

    def write(self) -> None:
        """Writes what was added. Raises ConfigError (AHBM-C141)."""
        if self._new:
            cases, rows, cells = zip(*self._new, strict=True)
            self._new = []
            self._store.add(self._space, cases, rows, {}, cells)
        self._written = time.monotonic()


def _words(case: Case) -> str:
    on = case.sweep
    return f"{on.collective} of {case.nbytes} B {on.dtype} by {case.algorithm or 'ccl.yaml'} on {on.machine}"


def _asked(case: Case, emulator: Emulator) -> str:
    """Digest of what a report tells of a case beside what its key has: how the machine is called and what is known of
    its error, notes, choices that change nothing, and the rules that chose."""
    sweep, machine = case.sweep, emulator.machine
    facts = [sweep.machine, machine.bands, machine.library, sweep.op, sweep.root, sweep.notes.get(case.algorithm or "")]
    facts += [emulator.ccl.fingerprint] if case.algorithm is None else []
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
