"""Accelerators: what their data sheets say of computing, memory and links. The packaged machines and the templates of a
calibration have it from here.

Peaks are dense (without sparsity), of matrix units where a type has them, and per accelerator: sheets of a whole
server or rack are divided. Bandwidths are each way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ahbm.errors import ConfigError


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
    units: int | None = None
    """SMs or CUs; None for what is not built of them."""
    clock_mhz: float = 0.0
    """Their boost clock."""
    l2_mib: float = 0.0
    """The cache that all units share."""

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

    def compute(self) -> dict[str, str | float] | None:
        """The section `compute` of a machine of it; None where its sheet does not tell of units."""
        if self.units is None:
            return None
        return {
            "source": f"the sheet of {self.name}; all else as fitted to an H200",
            "units": self.units,
            "clock_mhz": self.clock_mhz,
            "l2_mib": self.l2_mib,
        }


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
        units=160,
        clock_mhz=2032,
        l2_mib=126,
    ),
    ("GB200",): Accelerator(
        "GB200",
        "NVIDIA GB200 NVL72 specifications, by 72",
        2500,
        8000,
        186,
        900,
        40,
        80,
        1250,
        5000,
        225,
        domain=72,
        units=152,
        clock_mhz=2055,
        l2_mib=126,
    ),
    ("GH200",): Accelerator(
        "GH200",
        "NVIDIA GH200 Grace Hopper Superchip datasheet",
        990,
        4000,
        96,
        450,
        67,
        67,
        494,
        1979,
        450,
        units=132,
        clock_mhz=1980,
        l2_mib=60,
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
        units=256,
        clock_mhz=2400,
        l2_mib=256,
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
        units=256,
        clock_mhz=2200,
        l2_mib=256,
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
        units=304,
        clock_mhz=2100,
        l2_mib=256,
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
        units=304,
        clock_mhz=2100,
        l2_mib=256,
    ),
    ("MI250X",): Accelerator(
        "MI250X",
        _MI200,
        383,
        3276.8,
        128,
        300,
        95.7,
        95.7,
        95.7,
        383,
        PCIE_4,
        25,
        mesh=True,
        units=220,
        clock_mhz=1700,
        l2_mib=16,
    ),
    ("MI250",): Accelerator(
        "MI250",
        _MI200,
        362.1,
        3276.8,
        128,
        300,
        90.5,
        90.5,
        90.5,
        362.1,
        PCIE_4,
        25,
        mesh=True,
        units=208,
        clock_mhz=1700,
        l2_mib=16,
    ),
    ("B300",): Accelerator(
        "B300 SXM",
        "NVIDIA HGX B300 specifications, by 8",
        2250,
        8000,
        288,
        900,
        1.25,
        75,
        1125,
        4500,
        PCIE_5,
        100,
        units=148,
        clock_mhz=1980,
        l2_mib=126,
    ),
    ("B200",): Accelerator(
        "B200 SXM",
        "NVIDIA HGX B200 specifications, by 8",
        2250,
        8000,
        180,
        900,
        37,
        75,
        1125,
        4500,
        PCIE_5,
        units=148,
        clock_mhz=1980,
        l2_mib=126,
    ),
    ("H200",): Accelerator(
        "H200 SXM",
        "NVIDIA H200 Tensor Core GPU datasheet",
        989.4,
        4800,
        139.8,
        450,
        67,
        67,
        494.7,
        1978.9,
        PCIE_5,
        units=132,
        clock_mhz=1980,
        l2_mib=60,
    ),
    ("H100", "PCIE"): Accelerator(
        "H100 PCIe", _H100, 756, 2000, 80, 300, 51, 51, 378, 1513, PCIE_5, units=114, clock_mhz=1755, l2_mib=50
    ),
    ("H100", "NVL"): Accelerator(
        "H100 NVL", _H100, 835, 3900, 94, 300, 60, 60, 418, 1670, PCIE_5, units=132, clock_mhz=1785, l2_mib=50
    ),
    ("H100",): Accelerator(
        "H100 SXM", _H100, 989.4, 3350, 80, 450, 67, 67, 494.7, 1978.9, PCIE_5, units=132, clock_mhz=1980, l2_mib=50
    ),
    ("H800",): Accelerator(
        "H800 SXM",
        "NVIDIA H800 Tensor Core GPU datasheet",
        989.4,
        3350,
        80,
        200,
        1,
        67,
        494.7,
        1978.9,
        PCIE_5,
        units=132,
        clock_mhz=1980,
        l2_mib=50,
    ),
    ("A100", "PCIE", "80GB"): Accelerator(
        "A100 80 GB PCIe",
        _A100,
        312,
        1935,
        80,
        300,
        19.5,
        19.5,
        156,
        624,
        PCIE_4,
        25,
        units=108,
        clock_mhz=1410,
        l2_mib=40,
    ),
    ("A100", "40GB"): Accelerator(
        "A100 40 GB", _A100, 312, 1555, 40, 300, 19.5, 19.5, 156, 624, PCIE_4, 25, units=108, clock_mhz=1410, l2_mib=40
    ),
    ("A100",): Accelerator(
        "A100 80 GB SXM",
        _A100,
        312,
        2039,
        80,
        300,
        19.5,
        19.5,
        156,
        624,
        PCIE_4,
        25,
        units=108,
        clock_mhz=1410,
        l2_mib=40,
    ),
    ("A800",): Accelerator(
        "A800 80 GB SXM",
        "NVIDIA A800 Tensor Core GPU datasheet",
        312,
        2039,
        80,
        200,
        19.5,
        19.5,
        156,
        624,
        PCIE_4,
        25,
        units=108,
        clock_mhz=1410,
        l2_mib=40,
    ),
    ("V100", "PCIE"): Accelerator(
        "V100 PCIe", _V100, 112, 900, 32, 16, 7, 14, 14, 112, PCIE_3, 12.5, units=80, clock_mhz=1380, l2_mib=6
    ),
    ("V100",): Accelerator(
        "V100 SXM2", _V100, 125, 900, 32, 150, 7.8, 15.7, 15.7, 125, PCIE_3, 12.5, units=80, clock_mhz=1530, l2_mib=6
    ),
    ("P100",): Accelerator(
        "P100 PCIe",
        "NVIDIA Tesla P100 GPU accelerator data sheet",
        18.7,
        732,
        16,
        16,
        4.7,
        9.3,
        9.3,
        18.7,
        PCIE_3,
        12.5,
        units=56,
        clock_mhz=1303,
        l2_mib=4,
    ),
    ("P4",): Accelerator(
        "P4",
        "NVIDIA Tesla P4 inferencing accelerator data sheet",
        5.5,
        192,
        8,
        16,
        0.17,
        5.5,
        5.5,
        22,
        PCIE_3,
        12.5,
        units=20,
        clock_mhz=1063,
        l2_mib=2,
    ),
    ("T4",): Accelerator(
        "T4",
        "NVIDIA T4 Tensor Core GPU datasheet",
        65,
        320,
        16,
        16,
        0.25,
        8.1,
        8.1,
        130,
        PCIE_3,
        12.5,
        units=40,
        clock_mhz=1590,
        l2_mib=4,
    ),
    ("L4",): Accelerator(
        "L4",
        "NVIDIA L4 Tensor Core GPU datasheet",
        121,
        300,
        24,
        32,
        0.49,
        30.3,
        60,
        242,
        PCIE_4,
        25,
        units=58,
        clock_mhz=2040,
        l2_mib=48,
    ),
    ("MI210",): Accelerator(
        "MI210",
        _MI200,
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
        units=104,
        clock_mhz=1700,
        l2_mib=8,
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
        units=120,
        clock_mhz=1502,
        l2_mib=8,
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


def known(name: str) -> Accelerator | None:
    """The accelerator that a text names, such as "NVIDIA A100-SXM4-40GB"; None for one that is not known here."""
    text = name.upper().replace(" GB", "GB")

    def has(part: str) -> bool:
        # An L40 is no L4, and what ends in T4 is no T4.
        before = "(?<![A-WYZ0-9])" if len(part) == 2 else ""
        return re.search(rf"{before}{part}(?!\d)", text) is not None

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
