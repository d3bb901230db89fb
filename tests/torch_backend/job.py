"""A job for torchrun: all scenarios but those given as arguments."""

import sys

import torch.distributed as dist
from scenarios import SCENARIOS

dist.init_process_group("ahbm")
for name, scenario in SCENARIOS.items():
    if name not in sys.argv[1:]:
        scenario()
dist.destroy_process_group()
