"""What the checks find of planted bugs.

    python benches/planted.py                       the corpus: class by source, found/planted
    python benches/planted.py --cases 2000 --seed 1   random bugs at random places, with an independent judge
    python benches/planted.py --behind dist --cases 300   what a user of the kernels among all of these sees, and of
                                                    kernels whose values are wrong
    python benches/planted.py --conditional 300     bugs that show at some sizes, ranks or networks only
    python benches/planted.py --lines 20            changed lines of kernels: how near to them findings point

Prints every bug that was missed and every right program that was reported. With --keep FOLDER, their files are written
there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from planted import behind, conditional, corpus, lines, values
from planted.generator import cases as generated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="random cases instead of the corpus")
    parser.add_argument("--seed", type=int, default=1, help="chooses the random cases")
    parser.add_argument("--keep", type=Path, help="folder for the programs that were judged differently")
    parser.add_argument("--conditional", type=int, metavar="N", help="random conditions, instead of the corpus")
    parser.add_argument("--lines", type=int, metavar="N", help="most changes of each kernel, instead of the corpus")
    parser.add_argument("--behind", choices=["dist"], help="make two calls behind `ahbm.distributed`, unchecked before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.conditional is not None:
            of_conditions(options.conditional, options.seed, Path(folder))
        elif options.lines is not None:
            print(lines.table(list(lines.blames(options.lines, options.seed, Path(folder)))))
        elif options.behind:
            behind_dist(options.cases or 0, options.seed, Path(folder))
        elif options.cases is None:
            of_the_corpus(Path(folder))
        else:
            random_ones(options.cases, options.seed, Path(folder), options.keep)


def of_the_corpus(folder: Path) -> None:
    results = [(case, case.found()) for case in corpus.cases(folder)]
    print(corpus.table(results))
    for case, found in results:
        if found != (case.bug is not None):
            print(f"{'missed' if case.bug else 'false alarm'}: {case.source} {case.name}: {case.bug}")


def of_conditions(count: int, seed: int, folder: Path) -> None:
    found, elsewhere, seconds = [], 0, 0.0
    for bug in conditional.bugs(count, seed):
        first, place = bug.first(folder).verdict, bug.at_its_place(folder).verdict
        if first != "correct" or place in ("correct", "undecided"):
            elsewhere += 1
            continue
        began = time.process_time()
        verdict = bug.checked(folder).verdict
        seconds += time.process_time() - began
        found.append((bug, verdict))
        if verdict in ("correct", "undecided"):
            print(f"missed: {bug.name}, {bug.condition}, {bug.ranks} ranks, {bug.count} elements")
    print(conditional.table(found))
    print(f"{elsewhere} of {count} are wrong everywhere or nowhere; {seconds:.0f} s of processor time for {len(found)}")


def behind_dist(count: int, seed: int, folder: Path) -> None:
    began, found = time.process_time(), []

    def see(kind: str, name: str, path: str, right: bool, arguments: dict[str, Any]) -> None:
        seen = behind.outcome(path, **arguments)
        found.append((kind if not right else "none", seen))
        if seen == "silently wrong" or (right and seen == "error"):
            print(f"{seen}: {name}, {kind}")

    for case in corpus.cases(folder):
        if case.arguments is not None:
            see(case.bug or "none", case.name, case.path, case.bug is None, dict(case.arguments))
    for one, path, dtype in values.cases(folder):
        more = {"bytes_per_rank": 400, "dtype": dtype, "op": one.op, "overrides": {"system.sips.count": 4}}
        see("wrong values" if one.wrong else "none", f"{one.name} {dtype}", path, not one.wrong, more)
    for index in range(count):
        program = generated.case(f"{seed}/{index}", "kernel", folder).program
        path = folder / f"random_{index}.py"
        path.write_text(program.text, encoding="utf-8")
        bug = program.judged()
        see(f"random: {bug}", program.name, str(path), bug is None, generated.arguments(program.subject))
    print(behind.table(sorted(found)))
    print(f"{time.process_time() - began:.0f} s of processor time")


def random_ones(count: int, seed: int, folder: Path, keep: Path | None) -> None:
    began, found = time.process_time(), []
    for case in generated.cases(count, seed, folder):
        found.append(case)
        if case.agreed:
            continue
        kind = "undecided" if case.undecided else "missed" if case.judged else "false alarm"
        codes = ",".join(sorted({finding.code for finding in case.checked.findings}))
        program = case.program
        message = f"judged {case.judged}, {case.checked.verdict} {codes}"
        print(f"{kind}: {program.source} {program.name}, {program.bug}: {message}")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            name = f"{kind} {program.source} {program.bug} {program.name}".replace(" ", "_").replace("/", "_")
            path = keep / f"{name}.{generated.SUFFIXES[program.source]}"
            path.write_text(program.text, encoding="utf-8")
    print(generated.table(found))
    kinds = Counter(case.judged or "right" for case in found)
    print("judged:", ", ".join(f"{kind} {number}" for kind, number in kinds.most_common()))
    print(f"{time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
