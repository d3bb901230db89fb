"""A job for torchrun: all scenarios."""

import torch.distributed as dist
from scenarios import SCENARIOS

dist.init_process_group("ahbm")
for scenario in SCENARIOS.values():
    scenario()
dist.destroy_process_group()
