"""Sizes that every machine and every plan of a catalogue can run."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from ahbm._core import Machine
from ahbm.base.elements import element
from ahbm.base.sizes import Unit, resize_notes
from ahbm.choose.catalogue import Catalogue
from ahbm.config.ccl import CclConfig
from ahbm.config.topology import overruled
from ahbm.core.emulator import Emulator
from ahbm.source.plan import PlanAlgorithm


def whole_sizes(
    sizes: Sequence[int], catalogue: Catalogue, machines: Sequence[Machine], dtype: str
) -> tuple[list[int], int, list[str]]:
    """The sizes in ascending order, rounded down to bytes that every machine divides among its ranks and every plan
    into its chunks; the unit that they are multiples of; and what is to be said of those that were changed, and of
    numbers of ranks that ccl.yaml has its own of.

    Plans whose unit with the others' is more than the largest size are left to refuse what does not fit them.
    """
    itemsize, largest = element(dtype).storage.itemsize, max(sizes)
    unit = itemsize * lcm(*(machine.sips for machine in machines))
    emulator = Emulator(machines[0], CclConfig.load(catalogue.ccl, catalogue.overrides))
    for entry in catalogue:
        algorithm = emulator.algorithm(entry.given or entry.name)
        if isinstance(algorithm, PlanAlgorithm):
            both = lcm(unit, algorithm.read.unit(itemsize) * algorithm.how.instances)
            unit = both if both <= largest else unit
    what = f"a choice for {' and '.join(str(ranks) for ranks in sorted({machine.sips for machine in machines}))} ranks"
    found = list(Unit(unit, what).fit(sorted(sizes)))
    notes = dict.fromkeys(resize_notes(resized for _, resized in found))
    for on in map(emulator.on, machines):
        for entry in catalogue:
            ranks = on.settings(entry.given or entry.name).world_size or on.world_size
            notes |= dict.fromkeys(overruled(on.machine, ranks))
    return [size for size, _ in found], unit, list(notes)
