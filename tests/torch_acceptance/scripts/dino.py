"""In the style of DINO: a student and a teacher, several crops, a centre that all ranks agree on, DDP."""

import copy
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DINOLoss(nn.Module):
    def __init__(self, out_dim, ncrops):
        super().__init__()
        self.ncrops = ncrops
        self.register_buffer("center", torch.zeros(1, out_dim))

    def forward(self, student_output, teacher_output):
        student_out = (student_output / 0.1).chunk(self.ncrops)
        teacher_out = F.softmax((teacher_output - self.center) / 0.04, dim=-1).detach().chunk(2)
        total, n = 0, 0
        for iq, q in enumerate(teacher_out):
            for v in range(len(student_out)):
                if v != iq:
                    total = total + torch.sum(-q * F.log_softmax(student_out[v], dim=-1), dim=-1).mean()
                    n += 1
        self.update_center(teacher_output)
        return total / n

    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        dist.all_reduce(batch_center)
        batch_center = batch_center / (len(teacher_output) * dist.get_world_size())
        self.center = self.center * 0.9 + batch_center * 0.1


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16)
    )


gpu = int(os.environ["LOCAL_RANK"])
dist.init_process_group(backend="nccl", init_method="env://")
torch.cuda.set_device(gpu)
dist.barrier()
torch.manual_seed(0)
student, teacher = network().to(gpu), network().to(gpu)
student = DistributedDataParallel(student, device_ids=[gpu])
teacher.load_state_dict(student.module.state_dict())
for p in teacher.parameters():
    p.requires_grad = False
dino_loss = DINOLoss(16, 4).to(gpu)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
fp16_scaler = torch.amp.GradScaler("cuda", enabled=False)
torch.manual_seed(dist.get_rank())
before = copy.deepcopy(teacher.state_dict())
for it in range(4):
    images = [torch.rand(4, 3, size, size).to(gpu, non_blocking=True) for size in (24, 24, 12, 12)]
    teacher_output = teacher(torch.cat(images[:2]))
    student_output = torch.cat([student(torch.cat(images[:2])), student(torch.cat(images[2:]))])
    loss = dino_loss(student_output, teacher_output)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for q, k in zip(student.module.parameters(), teacher.parameters(), strict=True):
            k.data.mul_(0.996).add_((1 - 0.996) * q.detach().data)
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.17g}")
assert any((before[name] != now).any() for name, now in teacher.state_dict().items())
dist.destroy_process_group()
