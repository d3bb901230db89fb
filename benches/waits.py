"""Deletes every wait of correct execution plans, one at a time, and counts which of them the checks report.

    AHBM_CORPUS=folder python benches/waits.py [MOST]

With AHBM_CORPUS, the plans in its `mscclpp_json`; without, plans of our own. MOST: waits per plan, evenly chosen.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from planted.files import direct
from planted.waits import Count, count


def main() -> None:
    corpus = os.environ.get("AHBM_CORPUS")
    most = int(sys.argv[1]) if len(sys.argv) > 1 else None
    if corpus is None:
        plans = {f"direct {n}": direct(n, hello=False, goodbye=True) for n in (2, 3, 4)}
    else:
        paths = sorted((Path(corpus) / "mscclpp_json").glob("*.json"))
        plans = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    total, used = Count(), 0
    with tempfile.TemporaryDirectory() as folder:
        for name, document in plans.items():
            if "gpus" not in document:
                continue
            counted, missed = count(document, Path(folder), most)
            total.add(counted)
            used += counted.deleted > 0
            for place in missed:
                print(f"missed: {name} {place}")
    rest = total.deleted - total.matter
    print(
        f"{total.deleted} waits deleted in {used} correct plans: {total.matter} matter, {total.reported} are reported"
    )
    print(f"of the {rest} others, {total.leftover} leave signals that nobody waits for")


if __name__ == "__main__":
    main()
