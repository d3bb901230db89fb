"""Writes the packaged machines that were fitted to measurements, and the table of docs/zoo.md.

python scripts/zoo.py FOLDER [NAME ...]     # of the tables (AHBM_CORPUS); by default all machines
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from ahbm.calibrate import calibration, tables, written

ROOT = Path(__file__).resolve().parents[1]
MACHINES, PAGE = ROOT / "python/ahbm/data/topologies", ROOT / "docs/zoo.md"
BEGIN, END = "<!-- machines -->", "<!-- end -->"

_NODES_OF_H100 = "aws_p5_h100_1x8_all_reduce", "azure_nd_h100_1x8_all_reduce"
ZOO: dict[str, tuple[str, tuple[str, ...]]] = {
    "dgx_h100": ("8 H100 behind NVSwitch; the middle of two clusters, of AWS and of Azure", _NODES_OF_H100),
    "dgx_h200": ("8 H200 behind NVSwitch; its links, those of an H100, the middle of AWS and Azure", _NODES_OF_H100),
    "azure_nd_a100": ("Azure ND A100 v4: 8 A100 behind NVSwitch", ("azure_nd_a100_1x8_all_reduce",)),
    "azure_nd_h100": ("Azure ND H100 v5: 8 H100 behind NVSwitch", ("azure_nd_h100_1x8_all_reduce",)),
    "p5": ("AWS p5.48xlarge: 8 H100 behind NVSwitch", ("aws_p5_h100_1x8_all_reduce",)),
    "p5_2_nodes": ("2 AWS p5.48xlarge: 16 H100, 3,200 Gb/s of EFA a node", ("aws_p5_h100_2x8_all_reduce_nccl2.20",)),
    "p4de_2_nodes": ("2 AWS p4de.24xlarge: 16 A100, 400 Gb/s of EFA a node", ("aws_p4de_a100_2x8_all_reduce",)),
    "dgx_a100_2_nodes": (
        "2 DGX A100 with HDR InfiniBand: 16 A100, measured at Argonne (Sophia)",
        ("sophia_a100_2x8_all_reduce",),
    ),
    "h100_2_nodes": ("2 nodes of 8 H100 with InfiniBand, measured at Nebius", ("nebius_h100_2x8_all_reduce",)),
    "a3mega_2_nodes": ("2 Google a3-megagpu-8g: 16 H100; all_gather alone", ("gcp_a3mega_h100_2x8_all_gather",)),
    "b200_2_nodes": ("2 nodes of 8 B200 with InfiniBand, measured at Lambda", ("lambda_b200_2x8_all_reduce",)),
    "dgx_b300": ("8 B300 behind NVSwitch, published by one user", ("b300_1x8_all_reduce_default",)),
    "gb200_nvl72": (
        "2 GB200 NVL72: 144 GPUs, measured at CoreWeave; large sizes alone",
        ("coreweave_gb200_144_all_reduce",),
    ),
    "mi300x": ("8 MI300X, a mesh of Infinity Fabric, measured on AMD's cloud", ("amd_mi300x_1x8_all_reduce",)),
    "mi300x_2_nodes": ("2 nodes of 8 MI300X; 8 MiB and more", ("amd_mi300x_2x8_all_reduce_b",)),
    "polaris": ("2 nodes of Polaris: 4 A100 each, Slingshot", ("polaris_a100_n2_all_reduce_nccl2.18",)),
    "polaris_8_nodes": ("8 nodes of Polaris: 32 A100, Slingshot", ("polaris_a100_n8_all_reduce_nccl2.18",)),
    "polaris_n_nodes": (
        "any number of nodes of Polaris: 4 A100 each, Slingshot",
        ("polaris_a100_n2_all_reduce_nccl2.18", "polaris_a100_n8_all_reduce_nccl2.18"),
    ),
}
"""By name: what it is, and the tables it is fitted to."""
ACCELERATORS = {"dgx_h200": "H200"}
"""What a machine computes at, where that is not the accelerator of its tables."""
NIC_GBS = {
    "p4de_2_nodes": 6.25,  # 400 Gb/s of EFA for 8 accelerators
    "a3mega_2_nodes": 25.0,  # 1,600 Gb/s for 8
    **dict.fromkeys(("polaris", "polaris_8_nodes", "polaris_n_nodes"), 12.5),  # two Slingshot 11 of 200 Gb/s for 4
}
"""GB/s of an accelerator's share of its node's network interfaces, each way, where it is not what its maker's servers
have."""


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("AHBM_CORPUS", ""))
    if not folder.is_dir():
        print("name a folder of tables, or set AHBM_CORPUS", file=sys.stderr)
        return 2
    page = PAGE.read_text(encoding="utf-8")
    known = page[page.index(BEGIN) : page.index(END)].splitlines()
    rows = ["| name | machine | ranks | valid for | mean error % | median % | worst power of ten % |", "|---" * 7 + "|"]
    for name, (what, sources) in ZOO.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            rows += [line for line in known if line.startswith(f"| `{name}` |")]
            continue
        read = [tables.read(folder / f"{source}.csv") for source in sources]
        found = calibration.calibrate(read, accelerator=ACCELERATORS.get(name), nic_gbs=NIC_GBS.get(name))
        about = f"# {what}.\n# Written by scripts/zoo.py; `calibration` has the measurements and the errors.\n"
        body = written.text(found.tree).split("\n", 1)[1]
        schema = "# yaml-language-server: $schema=../schemas/topology.schema.json\n"
        (MACHINES / f"{name}.yaml").write_text(schema + about + body, encoding="utf-8")
        for each in found.judged:
            first, last = each.table.rows[0].bytes, each.table.rows[-1].bytes
            worst = max(band["mean_percent"] for band in each.decades)
            rows.append(
                f"| `{name}` | {what} | {each.table.ranks} | {each.table.collective}, {first} B to {last} B |"
                f" {each.mean:.1f} | {each.median:.1f} | {worst:.1f} |"
            )
        print(*rows[-len(found.judged) :], sep="\n", flush=True)
    table = BEGIN + "\n" + "\n".join(rows) + "\n" + END
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: table, page, flags=re.DOTALL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
