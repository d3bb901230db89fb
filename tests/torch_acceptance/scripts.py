"""Runs the scripts of `scripts/`, unchanged, on devices that are not there, and compares them with CPU and gloo.

`python tests/torch_acceptance/scripts.py [--quick] [NAME ...]` prints a table: whether the script ran, if its losses
are those of the reference to the last digit, whether two runs left the same bytes in their reports, what a step takes
and the most memory that a rank held. `--quick` leaves out second runs and whatever is not PyTorch's own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "torch_backend")]

import jobs

from ahbm.base.words import lasts

SCRIPTS: dict[str, tuple[int, list[str]]] = {
    "ddp": (2, ["ddp.py"]),
    "fsdp2": (2, ["fsdp2.py"]),
    "fsdp2-mixed": (2, ["fsdp2.py", "--mixed-precision", "--explicit-prefetching"]),
    "tensor_parallel": (2, ["tensor_parallel.py"]),
    "sequence_parallel": (2, ["sequence_parallel.py"]),
    "fsdp_tp": (4, ["fsdp_tp.py"]),
    "multigpu_torchrun": (2, ["multigpu_torchrun.py"]),
    "spawned": (0, ["spawned.py"]),
    "mingpt": (2, ["mingpt.py"]),
    "titan": (8, ["titan.py"]),
    "build_nanogpt": (2, ["build_nanogpt.py"]),
    "imagenet": (2, ["imagenet.py"]),
    "dino": (2, ["dino.py"]),
    "moco": (2, ["moco.py"]),
    "pipeline": (2, ["pipeline.py"]),
    "zero": (2, ["zero.py"]),
    **{
        name: (1, [f"{name}.py"])
        for name in (
            *(
                "nanogpt",
                "hlb_cifar",
                "muon",
                "dcgan",
                "mnist",
                "vae",
                "word_language_model",
                "seq2seq",
                "time_sequence",
            ),
            *(
                "actor_critic",
                "gcn",
                "dlrm",
                "factorization",
                "lora",
                "moe",
                "vit",
                "bert",
                "generate",
                "ddpm",
                "mamba",
            ),
            *("amp_accumulate", "data_parallel", "ctc", "nerf", "distillation", "profiled", "hooked_optimizer"),
            *("per_sample", "super_resolution"),
        )
    },
    "accelerate": (2, ["with_accelerate.py"]),
    "lightning": (2, ["with_lightning.py"]),
    "deepspeed": (2, ["with_deepspeed.py"]),
}
"""By name: how many processes torchrun starts (0: the script itself does), and the command."""
BY_TORCHRUN = ("multigpu_torchrun.py", "with_accelerate.py", "with_lightning.py", "with_deepspeed.py")
LIBRARIES = ("accelerate", "lightning", "deepspeed")


def run(ranks: int, command: list[str], *, device: bool, folder: str | None = None) -> tuple[int, str]:
    """The exit code and the output of one run. One script is run by torchrun itself; ranks of the others are forked."""
    start = ["-m", "ahbm.torch", "--device", f"cuda:{ranks or 2}"] if device else [str(HERE / "reference.py")]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "AHBM_PAGE": "0"}
    env.pop("AHBM_REPORT", None)
    if folder is not None:
        env["AHBM_REPORT"] = folder
    name, *rest = command
    start += [str(HERE / "scripts" / name), *rest]
    if not ranks:
        made = jobs.python(*start, env=env, fresh=True)
    elif name in BY_TORCHRUN:
        made = jobs.by_torchrun(start, ranks, env)
    else:
        made = jobs.forked(start, [env | place for place in jobs.places(ranks)], Path.cwd())
    return made.returncode, made.stdout + made.stderr


def losses(text: str) -> list[str]:
    """The losses that a run printed."""
    return [line.split()[1] for line in text.splitlines() if line.startswith("loss ")]


def content(folder: Path) -> dict[str, bytes]:
    """The files of a report but the page, whose charts another program draws."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".json", ".txt", ".et")
    }


def tried(name: str, quick: bool) -> bool:
    """Runs a script and prints its row."""
    ranks, command = SCRIPTS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / f"{number}" for number in range(1 if quick else 2)]
        codes, texts = zip(*(run(ranks, command, device=True, folder=str(folder)) for folder in folders), strict=True)
        _, reference = run(ranks, command, device=False)
        mine, theirs = losses(texts[0]), losses(reference)
        step = "-"
        answer = folders[0] / "answer.json"
        if answer.exists():
            found = json.loads(answer.read_text())
            memory = max(found["memory_peak_bytes"]) / 2**20
            step = f"{lasts(found['step_ns'])}, {memory:.2f} MiB"
        same = "-" if quick else "same bytes" if content(folders[0]) == content(folders[1]) else "DIFFERENT"
    ran = not any(codes) and bool(mine)
    equal = mine == theirs
    told = "ran" if ran else "FAILED"
    print(
        f"{name:<18} {told:<7} {len(mine):>2} losses {'equal' if equal else 'DIFFER':<7} {same:<11} step {step}",
        flush=True,
    )
    if not ran:
        print(texts[0][-3000:])
    elif not equal:
        print(f"  here {mine[:4]}, reference {theirs[:4]}")
        if not theirs:
            print(reference[-3000:])
    return ran and equal and same != "DIFFERENT"


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    names = asked.names or [name for name in SCRIPTS if not (asked.quick and name in LIBRARIES)]
    return 0 if all([tried(name, asked.quick) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
