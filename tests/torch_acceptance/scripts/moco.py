"""In the style of MoCo: a queue of keys, an encoder that follows, batches shuffled among all ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def concat_all_gather(tensor):
    gathered = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor, async_op=False)
    return torch.cat(gathered, dim=0)


def encoder():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 12))


class MoCo(nn.Module):
    def __init__(self, dim=12, K=32, m=0.9, T=0.07):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = encoder(), encoder()
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", nn.functional.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def batch_shuffle(self, x):
        gathered = concat_all_gather(x)
        idx_shuffle = torch.randperm(gathered.shape[0]).cuda()
        dist.broadcast(idx_shuffle, src=0)
        idx_unshuffle = torch.argsort(idx_shuffle)
        return gathered[idx_shuffle.view(dist.get_world_size(), -1)[dist.get_rank()]], idx_unshuffle

    def forward(self, im_q, im_k):
        q = nn.functional.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            for a, b in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
                b.data = b.data * self.m + a.data * (1.0 - self.m)
            shuffled, back = self.batch_shuffle(im_k)
            k = nn.functional.normalize(self.encoder_k(shuffled), dim=1)
            k = concat_all_gather(k)[back.view(dist.get_world_size(), -1)[dist.get_rank()]]
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        keys, ptr = concat_all_gather(k), int(self.queue_ptr)
        self.queue[:, ptr : ptr + keys.shape[0]] = keys.T
        self.queue_ptr[0] = (ptr + keys.shape[0]) % self.K
        return logits, torch.zeros(logits.shape[0], dtype=torch.long).cuda()


dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
torch.manual_seed(0)
model = DDP(MoCo().cuda(gpu), device_ids=[gpu])
criterion = nn.CrossEntropyLoss().cuda(gpu)
optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)
for step in range(4):
    images = [torch.rand(4, 3, 4, 4).cuda(gpu, non_blocking=True) + dist.get_rank() for _ in range(2)]
    output, target = model(im_q=images[0], im_k=images[1])
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if gpu == 0:
        print(f"loss {loss.item():.17g}")
dist.destroy_process_group()
