"""Accelerators: what their data sheets say of computing, memory and links. The packaged machines and the templates of a
calibration have it from here.

Peaks are dense (without sparsity), of matrix units where a type has them, and per accelerator: sheets of a whole
server or rack are divided. Bandwidths are each way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ahbm.errors import ConfigError

Laws = Mapping[str, Mapping[str, float]]
"""Numbers of `compute`, by section and key."""
AMPERE: Laws = {
    "vector": {"share": 0.949, "narrow": 0.933, "tile_ns": 429, "wave": 0.803},
    "convolution": {"winograd_share": 0.7},
}
"""Products in f32 of cuBLAS on Ampere and Ada, which has no quick kernels for operands of 64 rows; fitted to an A100
and an L4. Convolutions by Winograd: fitted to every second one of an A100. What is fitted here and names no other
source is fitted to the measurements of NeuSight (S. Lee et al., ASPLOS 2025)."""
ADA: Laws = {"product": {"watts_per_ghz": 1.1}, "vector": {"watts_per_ghz": 1.57}}
"""A unit of 4 nm takes less power; by products of 10,240 rows of an L4 (zzc0721/torch-performance-test-data, issue
120). Those of an L40S, by the same, are then off by 2 % in types of two bytes and by 6 % in f32."""
HOPPER: Laws = {
    "vector": {"sustained_mhz": 1630},
    "convolution": {
        "vector_share": 0.578,
        "vector_input_share": 0.537,
        "vector_weight_share": 0.293,
        "winograd_share": 0.845,
    },
}
"""The clock that lasts in large products in f32 of an H200; convolutions take as much as with the clock of others."""
XEON: Laws = {"host": {"factor": 0.88}}
"""The server of the H100 that was measured: what its host takes to issue six operations, by the same of the H200's."""
GDDR6: Laws = {
    "memory": {"share": 0.76},
    "reduce": {"share": 0.66},
    "foreach": {"share": 0.666},
    "softmax": {"long_share": 0.71},
    "product": {"memory_share": 0.65},
}
"""Its error correction takes a part of the bandwidth, which that of HBM does not; fitted to functions of elements on an
L4 and a T4, the other shares as it is to that of HBM."""
PASCAL: Laws = {"vector": {"sustained_mhz": 1189}}
"""The base clock (NVIDIA Tesla P100 PCIe product brief)."""
CDNA: Laws = {
    "vector": {
        "share": 0.628,
        "narrow": 0.162,
        "tile_ns": 2910,
        "wave": 0.069,
        "split_ns": 9380,
        "sustained_mhz": 2400,
    },
    "product": {"memory_share": 0.45},
}
"""Products in f32 of rocBLAS on matrix units; fitted to an MI100 and an MI210. Fitted to one of them, products of the
other are off by 12 and 17 % in the median, and models by 6 and 7 %."""


class Chip(NamedTuple):
    """What kernels run on."""

    units: int
    """SMs or CUs that are enabled."""
    clock_mhz: int
    """The highest that it runs at, which the peak in f32 of most sheets is of."""
    l2_mib: float
    """Of the cache that all units share, in units of 2^20 bytes."""
    source: str
    watts: int | None = None
    """Of its sheet; None where the law's power of a unit is not known to hold."""
    laws: tuple[Laws, ...] = ()
    """Of its kind, where those of the H200 do not hold."""
    off: tuple[float, float] | None = None
    """Percent by which steps that were measured on it are off, of the device and of the host; None where none was."""


MEASURED = (12.0, 30.0)
"""Of H200 and H100: what four of five of the measured steps of docs/device.md are within."""
OTHERS = (40.0, 35.0)
"""Of those of AMD's of which no kernel was measured: numbers of older ones in f32 stand for theirs."""


@dataclass(frozen=True)
class Accelerator:
    """Facts of a data sheet."""

    name: str
    source: str
    """The sheet."""
    tflops: float
    """In types of two bytes (bf16, f16), 1e12 operations per second."""
    memory_gbs: float
    memory_gb: float
    link_gbs: float
    """Bandwidth to all others of its node together."""
    f64: float | None = None
    """As `tflops`; None for what the sheet does not say, where the machine's own default holds."""
    f32: float | None = None
    tf32: float | None = None
    byte: float | None = None
    """In types of one byte: fp8, or int8 where there is no fp8."""
    host_gbs: float | None = None
    """To its host."""
    nic_gbs: float = 50.0
    """Bandwidth of its share of the node's network interfaces, as its maker's servers have them."""
    mesh: bool = False
    """Every pair has links of its own; else there is a switch."""
    domain: int | None = None
    """Accelerators behind one switch, where those are more than a host has."""

    def roofline(self) -> dict[str, str | float]:
        """The section `pe.roofline` of a machine of it."""
        shares = {"f64_share": self.f64, "f32_share": self.f32, "tf32_share": self.tf32, "byte_share": self.byte}
        return {
            "accelerator": self.name,
            "source": self.source,
            "peak_tflops": self.tflops,
            "memory_gbs": self.memory_gbs,
            **({} if self.host_gbs is None else {"host_gbs": self.host_gbs}),
            **{key: float(f"{peak / self.tflops:.7g}") for key, peak in shares.items() if peak is not None},
        }

    def compute(self) -> dict[str, Any] | None:
        """The section `compute` of a machine of it, by what is published alone; None where that says nothing."""
        chip = CHIPS.get(self.name)
        if chip is None:
            return None
        section: dict[str, Any] = {"source": chip.source, "units": chip.units, "clock_mhz": chip.clock_mhz}
        section["l2_mib"] = chip.l2_mib
        if chip.watts is not None:
            section["watts"] = chip.watts
        for laws in chip.laws:
            for name, numbers in laws.items():
                section[name] = {**section.get(name, {}), **numbers}
        if chip.off is not None:
            device, host = chip.off
            section["fit"] = {"bands": {"device_percent": device, "host_percent": host}}
        return section


PCIE_3, PCIE_4, PCIE_5 = 16.0, 32.0, 64.0
"""GB/s of 16 lanes."""
_V100 = "NVIDIA V100 Tensor Core GPU datasheet"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_MI200 = "AMD Instinct MI200 series accelerators data sheet"
_TPU = "Google Cloud documentation, TPU system architecture"

ACCELERATORS: Mapping[tuple[str, ...], Accelerator] = {
    ("GB300",): Accelerator(
        "GB300",
        "NVIDIA GB300 NVL72 specifications, by 72",
        2500,
        8000,
        288,
        900,
        1.39,
        83.3,
        1250,
        5000,
        225,
        100,
        domain=72,
    ),
    ("GB200",): Accelerator(
        "GB200", "NVIDIA GB200 NVL72 specifications, by 72", 2500, 8000, 186, 900, 40, 80, 1250, 5000, 225, domain=72
    ),
    ("GH200",): Accelerator(
        "GH200", "NVIDIA GH200 Grace Hopper Superchip datasheet", 990, 4000, 96, 450, 67, 67, 494, 1979, 450
    ),
    ("MI355X",): Accelerator(
        "MI355X",
        "AMD Instinct MI355X GPU data sheet",
        2516.6,
        8000,
        288,
        537.6,
        78.6,
        157.3,
        157.3,
        5033.2,
        PCIE_5,
        mesh=True,
    ),
    ("MI350X",): Accelerator(
        "MI350X",
        "AMD Instinct MI350X GPU data sheet",
        2306.9,
        8000,
        288,
        537.6,
        72.1,
        144.2,
        144.2,
        4613.7,
        PCIE_5,
        mesh=True,
    ),
    ("MI325X",): Accelerator(
        "MI325X",
        "AMD Instinct MI325X accelerator data sheet",
        1307.4,
        6000,
        256,
        448,
        163.4,
        163.4,
        653.7,
        2614.9,
        PCIE_5,
        mesh=True,
    ),
    ("MI300X",): Accelerator(
        "MI300X",
        "AMD Instinct MI300X accelerator data sheet",
        1307.4,
        5300,
        192,
        448,
        163.4,
        163.4,
        653.7,
        2614.9,
        PCIE_5,
        mesh=True,
    ),
    ("MI250X",): Accelerator("MI250X", _MI200, 383, 3276.8, 128, 300, 95.7, 95.7, 95.7, 383, PCIE_4, 25, mesh=True),
    ("MI250",): Accelerator("MI250", _MI200, 362.1, 3276.8, 128, 300, 90.5, 90.5, 90.5, 362.1, PCIE_4, 25, mesh=True),
    ("B300",): Accelerator(
        "B300 SXM", "NVIDIA HGX B300 specifications, by 8", 2250, 8000, 288, 900, 1.25, 75, 1125, 4500, PCIE_5, 100
    ),
    ("B200",): Accelerator(
        "B200 SXM", "NVIDIA HGX B200 specifications, by 8", 2250, 8000, 180, 900, 37, 75, 1125, 4500, PCIE_5
    ),
    ("H200",): Accelerator(
        "H200 SXM", "NVIDIA H200 Tensor Core GPU datasheet", 989.4, 4800, 139.8, 450, 67, 67, 494.7, 1978.9, PCIE_5
    ),
    ("H100", "PCIE"): Accelerator("H100 PCIe", _H100, 756, 2000, 80, 300, 51, 51, 378, 1513, PCIE_5),
    ("H100", "NVL"): Accelerator("H100 NVL", _H100, 835, 3900, 94, 300, 60, 60, 418, 1670, PCIE_5),
    ("H100",): Accelerator("H100 SXM", _H100, 989.4, 3350, 80, 450, 67, 67, 494.7, 1978.9, PCIE_5),
    ("H800",): Accelerator(
        "H800 SXM", "NVIDIA H800 Tensor Core GPU datasheet", 989.4, 3350, 80, 200, 1, 67, 494.7, 1978.9, PCIE_5
    ),
    ("A100", "PCIE", "80GB"): Accelerator(
        "A100 80 GB PCIe", _A100, 312, 1935, 80, 300, 19.5, 19.5, 156, 624, PCIE_4, 25
    ),
    ("A100", "PCIE", "40GB"): Accelerator(
        "A100 40 GB PCIe", _A100, 312, 1555, 40, 300, 19.5, 19.5, 156, 624, PCIE_4, 25
    ),
    ("A100", "40GB"): Accelerator("A100 40 GB", _A100, 312, 1555, 40, 300, 19.5, 19.5, 156, 624, PCIE_4, 25),
    ("A100",): Accelerator("A100 80 GB SXM", _A100, 312, 2039, 80, 300, 19.5, 19.5, 156, 624, PCIE_4, 25),
    ("A800",): Accelerator(
        "A800 80 GB SXM", "NVIDIA A800 Tensor Core GPU datasheet", 312, 2039, 80, 200, 19.5, 19.5, 156, 624, PCIE_4, 25
    ),
    ("V100", "PCIE"): Accelerator("V100 PCIe", _V100, 112, 900, 32, 16, 7, 14, 14, 112, PCIE_3, 12.5),
    ("V100",): Accelerator("V100 SXM2", _V100, 125, 900, 32, 150, 7.8, 15.7, 15.7, 125, PCIE_3, 12.5),
    ("P100",): Accelerator(
        "P100 PCIe", "NVIDIA Tesla P100 GPU accelerator datasheet", 18.7, 732, 16, 16, 4.7, 9.3, 9.3, None, PCIE_3, 12.5
    ),
    ("P4",): Accelerator(
        "P4", "NVIDIA Tesla P4 inference accelerator datasheet", 5.5, 192, 8, 16, 0.17, 5.5, 5.5, 22, PCIE_3, 12.5
    ),
    ("T4",): Accelerator(
        "T4", "NVIDIA T4 Tensor Core GPU datasheet", 65, 320, 16, 16, 0.25, 8.1, 8.1, 130, PCIE_3, 12.5
    ),
    ("A10",): Accelerator(
        "A10", "NVIDIA A10 Tensor Core GPU datasheet", 125, 600, 24, 32, 0.98, 31.2, 62.5, 250, PCIE_4, 12.5
    ),
    ("L4",): Accelerator(
        "L4", "NVIDIA L4 Tensor Core GPU datasheet", 121, 300, 24, 32, 0.47, 30.3, 60, 242.5, PCIE_4, 12.5
    ),
    ("L40S",): Accelerator("L40S", "NVIDIA L40S GPU datasheet", 362.05, 864, 48, 32, 1.4, 91.6, 183, 733, PCIE_4, 25),
    ("MI210",): Accelerator(
        "MI210",
        "AMD Instinct MI210 accelerator brochure",
        181,
        1638.4,
        64,
        150,
        45.3,
        45.3,
        45.3,
        181,
        PCIE_4,
        25,
        mesh=True,
    ),
    ("MI100",): Accelerator(
        "MI100",
        "AMD Instinct MI100 accelerator brochure",
        184.6,
        1228.8,
        32,
        138,
        11.5,
        46.1,
        46.1,
        184.6,
        PCIE_4,
        25,
        mesh=True,
    ),
    ("WSE",): Accelerator(
        "a core of a wafer-scale engine",
        "K. Rocki et al., Fast stencil-code computation on a wafer-scale processor, SC20, at 850 MHz",
        0.0068,
        20.4,
        48 / (1 << 20),
        13.6,
        f32=0.0017,
    ),
    ("TPU", "V5P"): Accelerator("TPU v5p", f"{_TPU}, TPU v5p", 459, 2765, 95, 600, byte=918),
    ("TPU", "V4"): Accelerator("TPU v4", f"{_TPU}, TPU v4", 275, 1200, 32, 300, byte=275),
}
"""By the parts that the name of one has, the first that fits."""
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture; clock and L2 as its driver says them"
_AMPERE = "NVIDIA A100 Tensor Core GPU Architecture"
_VOLTA = "NVIDIA Tesla V100 GPU Architecture"
_ADA = "NVIDIA Ada GPU Architecture"
_BLACKWELL = "Chips and Cheese, Nvidia's B200; clock by the data sheet's peak in f32"
_ULTRA = "NVIDIA, Inside Blackwell Ultra; clock by the data sheet's peak in f32, L2 that of a B200"
_CDNA_2 = "AMD CDNA 2 architecture white paper"
_CDNA_3 = "AMD CDNA 3 architecture white paper; its last cache"
_CDNA_4 = "AMD CDNA 4 architecture white paper; its last cache"
CHIPS: Mapping[str, Chip] = {
    "GB300": Chip(160, 2034, 126, _ULTRA, 1400, (HOPPER,)),
    "GB200": Chip(152, 2056, 126, _BLACKWELL, 1200, (HOPPER,)),
    "B300 SXM": Chip(148, 1980, 126, _ULTRA, 1100, (HOPPER,)),
    "B200 SXM": Chip(148, 1980, 126, _BLACKWELL, 1000, (HOPPER,)),
    "GH200": Chip(132, 1980, 60, _HOPPER, laws=(HOPPER,)),
    "H200 SXM": Chip(132, 1980, 60, _HOPPER, 700, (HOPPER,), MEASURED),
    "H100 SXM": Chip(132, 1980, 50, _HOPPER, 700, (HOPPER, XEON), MEASURED),
    "H100 PCIe": Chip(114, 1755, 50, _HOPPER, 350, (HOPPER,)),
    "H100 NVL": Chip(132, 1785, 60, _HOPPER, 400, (HOPPER,)),
    "H800 SXM": Chip(132, 1980, 50, _HOPPER, 700, (HOPPER,)),
    "A100 80 GB PCIe": Chip(108, 1410, 40, _AMPERE, 300, (AMPERE,)),
    "A100 40 GB PCIe": Chip(108, 1410, 40, _AMPERE, 250, (AMPERE,)),
    "A100 40 GB": Chip(108, 1410, 40, _AMPERE, 400, (AMPERE,)),
    "A100 80 GB SXM": Chip(108, 1410, 40, _AMPERE, 400, (AMPERE,)),
    "A800 80 GB SXM": Chip(108, 1410, 40, _AMPERE, 400, (AMPERE,)),
    "A10": Chip(72, 1695, 6, "NVIDIA Ampere GA102 GPU Architecture", 150, (AMPERE, GDDR6)),
    "L4": Chip(58, 2040, 48, _ADA, 72, (AMPERE, ADA, GDDR6)),
    "L40S": Chip(142, 2520, 96, _ADA, 350, (AMPERE, ADA, GDDR6)),
    "T4": Chip(40, 1590, 4, "NVIDIA Turing GPU Architecture", 70, (GDDR6,)),
    "V100 PCIe": Chip(80, 1380, 6, _VOLTA, 250),
    "V100 SXM2": Chip(80, 1530, 6, _VOLTA, 300),
    "P100 PCIe": Chip(56, 1328, 4, "NVIDIA Tesla P100 (Pascal) white paper", 250, (PASCAL,)),
    "P4": Chip(20, 1114, 2, "NVIDIA Tesla P4 product brief", 75),
    "MI355X": Chip(256, 2400, 256, _CDNA_4, laws=(CDNA,), off=OTHERS),
    "MI350X": Chip(256, 2200, 256, _CDNA_4, laws=(CDNA,), off=OTHERS),
    "MI325X": Chip(304, 2100, 256, _CDNA_3, laws=(CDNA,), off=OTHERS),
    "MI300X": Chip(304, 2100, 256, _CDNA_3, laws=(CDNA,), off=OTHERS),
    "MI250X": Chip(220, 1700, 16, _CDNA_2, laws=(CDNA,)),
    "MI250": Chip(208, 1700, 16, _CDNA_2, laws=(CDNA,)),
    "MI210": Chip(104, 1700, 8, _CDNA_2, laws=(CDNA,)),
    "MI100": Chip(120, 1502, 8, "AMD CDNA architecture white paper", laws=(CDNA,)),
}
"""By the accelerator's name."""
_ALONE = {"A10", "L4", "P4", "T4"}
"""Names that are the beginning of others: they stand alone."""


def known(name: str) -> Accelerator | None:
    """The accelerator that a text names, such as "NVIDIA A100-SXM4-40GB"; None for one that is not known here."""
    text = name.upper().replace(" GB", "GB")

    def has(part: str) -> bool:
        return part in (words if part in _ALONE else text)

    words = set(re.split(r"[^A-Z0-9]+", text))
    return next((each for parts, each in ACCELERATORS.items() if all(map(has, parts))), None)


def names() -> list[str]:
    """Those that are known."""
    return [each.name for each in ACCELERATORS.values()]


def named(name: str) -> Accelerator:
    """The accelerator that a user names. Raises ConfigError (AHBM-C195) for one that is not known here."""
    found = known(name)
    if found is None:
        raise ConfigError(
            "AHBM-C195", f"no data sheet of {name[:40]!r} is known", hint=f"known are {', '.join(names())}"
        )
    return found
