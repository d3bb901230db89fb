"""What the checks find of the planted bugs: class by source, found/planted, and clean programs that were reported."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from planted.corpus import cases, table


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = [(case, case.found()) for case in cases(Path(folder))]
    print(table(results))
    for case, found in results:
        if found != (case.bug is not None):
            print(f"{'missed' if case.bug else 'false alarm'}: {case.source} {case.name}: {case.bug}")


if __name__ == "__main__":
    main()
