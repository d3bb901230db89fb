"""Processor time of a training step with the model of time, against a plain one: `python benches/model_overhead.py`.

A small Llama of two layers, one process and one thread; medians over steps. Each run is a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDTHS = (64, 512)
STEPS = 30


def step_ms(width: int, device: str) -> float:
    """Median milliseconds of processor time that a step takes on a device."""
    sys.path.append(str(ROOT / "tests" / "torch_acceptance" / "scripts"))
    import torch
    from tiny_llama import Transformer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Transformer(dim=width, n_layers=2).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    tokens = torch.randint(0, 256, (8, 128), device=device)
    took = []
    for _ in range(STEPS if width < 256 else STEPS // 3):
        began = time.process_time()
        loss = torch.nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        took.append(time.process_time() - began)
    return 1000 * statistics.median(took[3:])


def run(width: int, *launcher: str) -> float:
    """`step_ms` of another process."""
    device = "cuda" if launcher else "cpu"
    command = [sys.executable, *launcher, __file__, f"{width}", device]
    env = os.environ | {"OMP_NUM_THREADS": "1", "AHBM_STEPS": f"{STEPS}", "AHBM_TOPOLOGY": "default"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def main() -> None:
    for width in WIDTHS:
        plain, model = run(width), run(width, "-m", "ahbm.torch", "--device", "cuda")
        print(f"width {width}: {plain:.1f} ms plain, {model:.1f} ms with the model: {model / plain:.2f} times")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(step_ms(int(sys.argv[1]), sys.argv[2]))
    else:
        main()
