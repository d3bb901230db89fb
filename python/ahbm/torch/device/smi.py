"""`nvidia-smi` of devices that are not there: run as a file, without torch, it answers from the machine.

It tells names, counts and sizes. What processes hold is theirs to tell: nothing is held here.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ahbm._core import Machine

FACTS = "AHBM_SMI"
"""Environment variable: the file that says how many devices there are."""
DRIVER = "580.00"
"""The driver's version that scripts are told: one that CUDA 13 needs."""
CAPABILITY = (9, 0)
"""What scripts that ask for a generation are told: one that has bf16 and float8."""


def called(machine: Machine) -> str:
    """What a device of the machine is called."""
    return f"AHBM emulated device ({machine.topology})"


def memory_of(machine: Machine) -> int:
    """Bytes of a device's memory."""
    found = dict(machine.parameters)
    return int(float(found["cube.memory_map.hbm_total_gb"]) * 2**30) * machine.cubes


def uuid(index: int) -> str:
    """The name by which a device is known in the whole world."""
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def bus(index: int) -> str:
    """The place of a device on the host's bus."""
    return f"00000000:{index + 1:02X}:00.0"


def fields(name: str, total: int, count: int, index: int) -> dict[str, tuple[str, str]]:
    """What `--query-gpu` may ask, as a value and its unit."""
    return {
        "index": (f"{index}", ""),
        "count": (f"{count}", ""),
        "name": (name, ""),
        "gpu_name": (name, ""),
        "uuid": (uuid(index), ""),
        "gpu_uuid": (uuid(index), ""),
        "pci.bus_id": (bus(index), ""),
        "gpu_bus_id": (bus(index), ""),
        "driver_version": (DRIVER, ""),
        "compute_cap": (".".join(map(str, CAPABILITY)), ""),
        "memory.total": (f"{total >> 20}", " MiB"),
        "memory.free": (f"{total >> 20}", " MiB"),
        "memory.used": ("0", " MiB"),
        "utilization.gpu": ("0", " %"),
        "utilization.memory": ("0", " %"),
    }


def answer(arguments: list[str], name: str, total: int, count: int) -> str | None:
    """What the command prints; None for a question that it does not know."""
    asked = next((arg.partition("=")[2] for arg in arguments if arg.startswith("--query-gpu=")), None)
    rows = range(count)
    for option in ("-i", "--id"):
        if option in arguments:
            wanted = arguments[arguments.index(option) + 1].split(",")
            rows = [index for index in rows if str(index) in wanted or uuid(index) in wanted]  # type: ignore[assignment]
    if asked is not None:
        form = next((arg.partition("=")[2].split(",") for arg in arguments if arg.startswith("--format=")), [])
        if "csv" not in form:
            return None
        names = [part.strip() for part in asked.split(",")]
        lines = []
        if "noheader" not in form:
            known = fields(name, total, count, 0)
            units = ("" if "nounits" in form else known.get(part, ("", ""))[1].strip() for part in names)
            lines.append(
                ", ".join(f"{part} [{unit}]" if unit else part for part, unit in zip(names, units, strict=True))
            )
        for index in rows:
            known = fields(name, total, count, index)
            cells = (known.get(part, ("[N/A]", "")) for part in names)
            lines.append(", ".join(value + ("" if "nounits" in form else unit) for value, unit in cells))
        return "\n".join(lines)
    if "-L" in arguments or "--list-gpus" in arguments:
        return "\n".join(f"GPU {index}: {name} (UUID: {uuid(index)})" for index in rows)
    if any(arg.startswith("--query-compute-apps") for arg in arguments):
        return ""
    if [arg for arg in arguments if arg not in ("-i", "--id") and not arg.isdecimal()]:
        return None
    head = f"NVIDIA-SMI (emulated)   Driver Version: {DRIVER}   CUDA Version: 13.0"
    return "\n".join([head, *(f"| {index}  {name}  {bus(index)} | 0MiB / {total >> 20}MiB |" for index in rows)])


def main() -> int:
    """Prints the answer; 1 for a question that is not known."""
    from ahbm.ranks.setup import Setup

    with open(os.environ[FACTS], encoding="utf-8") as file:
        count = json.load(file)["count"]
    machine = Setup().sized(int(os.environ.get("WORLD_SIZE") or 1)).emulator().machine
    text = answer(sys.argv[1:], called(machine), memory_of(machine), count)
    if text is None:
        print(f"AHBM-U156 nvidia-smi {' '.join(sys.argv[1:])}: a device that is not there does not tell this")
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.path.pop(0)
    sys.exit(main())
