"""What the checks find of planted bugs.

    python benches/planted.py                       the corpus: class by source, found/planted
    python benches/planted.py --cases 2000 --seed 1   random bugs at random places, with an independent judge

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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from planted import corpus
from planted.generator import cases as generated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="random cases instead of the corpus")
    parser.add_argument("--seed", type=int, default=1, help="chooses the random cases")
    parser.add_argument("--keep", type=Path, help="folder for the programs that were judged differently")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.cases is None:
            of_the_corpus(Path(folder))
        else:
            random_ones(options.cases, options.seed, Path(folder), options.keep)


def of_the_corpus(folder: Path) -> None:
    results = [(case, case.found()) for case in corpus.cases(folder)]
    print(corpus.table(results))
    for case, found in results:
        if found != (case.bug is not None):
            print(f"{'missed' if case.bug else 'false alarm'}: {case.source} {case.name}: {case.bug}")


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
