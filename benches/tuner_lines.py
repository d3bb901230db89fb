"""How many lines of the tuner files of NCCL that `ahbm tune` writes are worse than what NCCL takes by itself.

A line is judged at every power of two in its range from 8 B to 8 GiB, by NCCL's own model with the machine's constants,
and by measured tables where they are given: `python benches/tuner_lines.py [MACHINE ...]
[--measured MACHINE:[ALGORITHM/PROTOCOL=]FILE]`. With `--files FOLDER`, the files FOLDER/MACHINE/nccl_tuner.csv that
somebody else has written are judged instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from ahbm._core import Machine
from ahbm.base.rules import Query, Rule
from ahbm.choose import formats
from ahbm.choose.catalogue import Catalogue
from ahbm.choose.files import save
from ahbm.choose.fitted import Fitted, Verdict
from ahbm.choose.measured import read
from ahbm.choose.regret import Point
from ahbm.choose.tune import tune
from ahbm.config.ccl import CclConfig
from ahbm.config.topology import load_machine
from ahbm.core.emulator import Emulator
from ahbm.source.switches import count_nodes

MACHINES = ("p5", "p5_2_nodes", "dgx_b300", "azure_nd_a100", "azure_nd_h100", "h100_2_nodes")
NAMES = ("nccl_ring_allreduce", "double_binary_tree_allreduce", "nvls_allreduce", "nvls_tree_allreduce")
SIZES = [1 << power for power in range(10, 31, 2)]


def judged(fitted: Fitted, machine: Machine, file: Path) -> dict[Rule, list[Verdict]]:
    """The verdicts of each line of a file."""
    nodes, rules = count_nodes(machine, range(machine.sips)), formats.read(file).rules
    found: dict[Rule, list[Verdict]] = {rule: [] for rule in rules}
    for nbytes in (1 << power for power in range(3, 34)):
        rule = rules.choose(Query("all_reduce", nbytes, machine.sips, nodes))
        if rule is not None:
            point = Point("machine", machine.topology, machine.sips, nbytes, "all_reduce", "f16")
            verdict = fitted.verdict(point, nodes, rule.algorithm, rule.protocol, rule.channels)
            if verdict is not None:
                found[rule].append(verdict)
    return found


def measured_of(name: str, given: Iterable[str]) -> list[str]:
    """The files that were measured on a machine."""
    pairs = (one.partition(":") for one in given)
    return [file for machine, _, file in pairs if machine == name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", default=MACHINES)
    parser.add_argument("--measured", action="append", default=[], metavar="MACHINE:FILE")
    parser.add_argument("--files", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as made:
        print(f"{'machine':16} {'s':>5} {'lines':>6} {'worse':>6} {'worst':>7} {'better':>7}")
        for name in options.machines:
            machine, start = load_machine(name), time.process_time()
            measured = read(measured_of(name, options.measured))
            folder = (options.files or Path(made)) / name
            if options.files is None:
                catalogue = Catalogue.of("all_reduce", NAMES)
                save(tune(catalogue, [machine], SIZES, measured=measured), folder)
            took = time.process_time() - start
            lines = judged(Fitted(Emulator(machine, CclConfig.load()), measured), machine, folder / "nccl_tuner.csv")
            worse = [rule for rule, verdicts in lines.items() if any(each.harms for each in verdicts)]
            worst = max((each.us / each.own_us for found in lines.values() for each in found), default=1.0)
            better = sum(any(each.helps for each in verdicts) for verdicts in lines.values())
            print(f"{name:16} {took:5.1f} {len(lines):6} {len(worse):6} {worst:6.1f}x {better:7}")


if __name__ == "__main__":
    main()
