"""What scripts do with values, where tensors have none: `python -m ahbm.torch --device cuda:1 --ranks 1 --fake`."""

import copy
import gc
import math
import os
import sys
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset

from ahbm.torch.device.meter import meter

FOLDER = sys.argv[1]


def reading() -> None:
    """Reads values in all the ways that there are."""
    small, ones = nn.Linear(4, 4), torch.ones(3, 4)
    nn.init.ones_(small.weight)
    nn.init.zeros_(small.bias)
    assert f"{small.cuda()(ones.cuda()).mean():.4f}" == "4.0000"  # what is small has its data
    model = nn.Linear(128, 128).cuda()
    loss = model(torch.ones(3, 128, device="cuda")).mean()
    assert f"{loss:.4f}" == "1.0000" and format(loss.cpu(), ".1f") == "1.0" and "%.2f" % loss == "1.00"  # noqa: UP031
    assert "no data" in repr(model.weight) and "no data" in str(model(torch.ones(3, 128, device="cuda")))
    assert f"{torch.zeros(3).mean():.2f}" == "0.00" and repr(torch.zeros(2)) == "tensor([0., 0.])"
    assert repr(torch.arange(2, device="cuda")) == "tensor([0, 1], device='cuda:0')"
    assert not loss.isnan() and not torch.isinf(loss).any() and math.isfinite(loss) and torch.isfinite(loss).all()
    assert loss.detach().cpu().numpy() == 1 and model.weight.detach().cpu().numpy().shape == (128, 128)
    assert np.asarray(model.bias.detach().cpu()).dtype == np.float32 and len(model.weight.tolist()) == 128
    assert torch.arange(6, device="cuda").reshape(2, 3)[:, 1].tolist() == [1, 4]
    assert (torch.arange(10).cuda() * 3).sum().item() == 135 and float(torch.tensor(2.5, device="cuda")) == 2.5
    assert torch.allclose(model.weight, model.weight + 1)
    a = torch.zeros(4, dtype=torch.long, device="cuda")
    a[2] = 7
    a[:2].fill_(3)
    a += torch.tensor([1, 1, 1, 1]).cuda()
    assert a.tolist() == [4, 4, 8, 1] and int(a.max()) == 8 and a.argmax() == 2


def sizes() -> None:
    """Sizes that depend on data."""
    x = torch.randn(100, 80, device="cuda")
    mask = torch.arange(100, device="cuda") < 30
    assert x[mask].shape == (30, 80) and x[mask, 0].shape == (30,) and mask.nonzero().shape == (30, 1)
    x[mask] = 0.0
    x[mask] = x[mask] * 2
    drawn = x[:, 0] > 0
    assert x[drawn].shape == (50, 80) and int(drawn.sum()) == 50 and len(torch.where(drawn)[0]) == 50
    assert torch.masked_select(x, x > 0).shape == (4000,) and torch.argwhere(drawn).shape == (50, 1)
    labels = torch.arange(12, device="cuda") % 4
    assert (
        torch.unique(labels).tolist() == [0, 1, 2, 3]
        and torch.bincount(labels, minlength=6).tolist() == [3] * 4 + [0] * 2
    )
    assert torch.unique(labels, return_counts=True)[1].tolist() == [3] * 4
    assert torch.unique_consecutive(labels).shape == (12,) and torch.unique(x[:, 1]).shape == (100,)
    assert torch.repeat_interleave(torch.arange(3, device="cuda")).tolist() == [1, 2, 2]
    assert torch.repeat_interleave(x[:3], torch.tensor([1, 0, 4], device="cuda"), dim=0).shape == (5, 80)
    assert [len(part) for part in x.split(torch.tensor([10, 90], device="cuda").tolist())] == [10, 90]
    assert torch.histc(labels, bins=4, min=0, max=4).tolist() == [3] * 4
    assert torch.multinomial(torch.softmax(x, 1), 1).shape == (100, 1)


class MoE(nn.Module):
    """A block that loops over experts, or one that sorts tokens by expert."""

    def __init__(self, width: int, experts: int, k: int) -> None:
        super().__init__()
        self.gate, self.k = nn.Linear(width, experts, bias=False), k
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = torch.topk(self.gate(x).float().softmax(-1), self.k)
        out = torch.zeros_like(x)
        self.seen = []
        for e, expert in enumerate(self.experts):
            token, place = torch.where(chosen == e)
            self.seen.append(len(token))
            out.index_add_(0, token, expert(x[token]) * weight[token, place, None])
        hot = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        assert hot.sum(dim=(-1, -2)).gt(0).nonzero().shape[0] == len(self.experts)
        counts = torch.histc(chosen.view(-1), bins=len(self.experts), min=0, max=len(self.experts))
        assert counts.tolist() == self.seen == torch.bincount(chosen.view(-1)).tolist()
        order = torch.argsort(chosen.view(-1), stable=True)
        parts = x[order // self.k].split(counts.int().tolist())
        return out + sum(part.sum() for part in parts)


def routing() -> None:
    """Tokens go to experts evenly, or as `--routing` says."""
    moe = MoE(1024, 8, 2).cuda()
    moe(torch.randn(64, 1024, device="cuda", requires_grad=True)).sum().backward()
    assert sum(moe.seen) == 128
    if os.environ.get("AHBM_ROUTING"):
        assert max(moe.seen) == 48, moe.seen
    else:
        assert moe.seen == [16] * 8, moe.seen


class Rows(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return torch.rand(4) + 1, at % 3


def copies() -> None:
    """A copy of a model is of the same mode, and frees none of the weak references of it."""
    net = nn.BatchNorm1d(2048).cuda()
    freed: list[int] = []
    frees = StorageWeakRef.__del__

    def note(ref: StorageWeakRef) -> None:
        freed.append(ref.cdata)
        frees(ref)

    StorageWeakRef.__del__ = note
    try:
        other = copy.deepcopy(net)
        assert other.weight.fake_mode is net.weight.fake_mode and isinstance(other.weight, nn.Parameter)
        del other
        gc.collect()
    finally:
        StorageWeakRef.__del__ = frees
    assert not freed
    other = copy.deepcopy(net)
    other(torch.ones(2, 2048, device="cuda"))
    assert int(other.num_batches_tracked) == 1 and int(net.num_batches_tracked) == 0 and other.weight.is_cuda


def training() -> None:
    """A scaler, clipping, workers, averages, files, and going on from them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 2048), nn.BatchNorm1d(2048), nn.Linear(2048, 3)).cuda()
    average = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    scaler = torch.amp.GradScaler("cuda")
    right = 0
    for x, y in DataLoader(Rows(), batch_size=8, num_workers=2, shuffle=True, pin_memory=True):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        if loss.isnan():
            raise RuntimeError("diverged")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        right += (model(x).argmax(1) == y).sum().item()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.lerp_(q, 0.1)
        schedule.step(loss.item())
        print(f"{loss:.3f} {norm:.3f} {right}", file=sys.stderr)
    assert scaler.get_scale() == 65536 and 0 <= right <= 32
    assert {int(state["step"]) for state in optimizer.state.values()} == {4}
    assert int(model[1].num_batches_tracked) == 8
    file = os.path.join(FOLDER, "state.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "at": 4}, file)
    found = torch.load(file, map_location="cuda", weights_only=True)
    assert found["model"]["0.weight"].is_cuda and found["model"]["0.weight"].shape == (2048, 4) and found["at"] == 4
    for strict in (True, False):
        model.load_state_dict(found["model"], strict=strict)
    optimizer.load_state_dict(found["optimizer"])
    optimizer.step()
    model.load_state_dict(torch.load(file)["model"], assign=True)
    model(torch.ones(2, 4, device="cuda")).sum().backward()


def files() -> None:
    """Files that a run with data has written."""
    for where in ("cpu", "cuda", {"cuda:0": "cpu"}, None):
        for mmap in (None, False, True):
            found = torch.load(os.path.join(FOLDER, "real.pt"), map_location=where, mmap=mmap)
            assert found["labels"].tolist() == [3, 1, 2] and found["images"].shape == (64, 3, 8, 8)
            assert found["images"].is_cuda is (where == "cuda")
    with open(os.path.join(FOLDER, "real.pt"), "rb") as file:
        assert torch.load(file)["images"].sum().item() == 64 * 3 * 64
    tokens = np.memmap(os.path.join(FOLDER, "tokens.bin"), dtype=np.uint16, mode="r")
    start = torch.randint(len(tokens) - 16, (4,))
    x = torch.stack([torch.from_numpy(tokens[i : i + 16].astype(np.int64)) for i in start])
    x = x.pin_memory().to("cuda", non_blocking=True)
    assert nn.Embedding(1000, 8).cuda()(x).shape == (4, 16, 8) and x.max().item() < 1000
    images = torch.load(os.path.join(FOLDER, "real.pt"), map_location="cuda")["images"]
    order = torch.randperm(len(images), device="cuda")
    flipped = torch.where((torch.rand(len(images), 1, 1, 1, device="cuda") < 0.5), images.flip(-1), images)
    assert flipped[order[:16]].shape == (16, 3, 8, 8) and sorted(order.tolist()) == list(range(64))


def sequences() -> None:
    """Packed sequences."""
    x, lengths = torch.randn(3, 5, 400, device="cuda", requires_grad=True), torch.tensor([5, 2, 3])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    assert packed.data.shape == (10, 400) and packed.batch_sizes.tolist() == [3, 3, 2, 1, 1]
    padded, again = pad_packed_sequence(packed, batch_first=True)
    padded.sum().backward()
    assert padded.shape == (3, 5, 400) and again.tolist() == [5, 2, 3] and x.grad is not None


def loops() -> None:
    """Loops that wait for data end."""
    x = torch.randn(5000, device="cuda")
    done, rounds = False, 0
    while not done:
        x = x * 0.5
        done, rounds = bool((x < 1e-6).all()), rounds + 1
    while not x.sum() < 1e-9:
        x, rounds = x * 0.5, rounds + 1
    assert 0 < rounds < 3000
    tokens, end = torch.zeros(2, 1, dtype=torch.long, device="cuda"), 50256
    head = nn.Linear(8, 50257).cuda()
    for _ in range(5):
        logits = head(torch.randn(2, 8, device="cuda"))
        best, _ = torch.topk(logits, 10)
        logits[logits < best[:, [-1]]] = -float("inf")
        token = torch.multinomial(logits.softmax(-1), 1)
        tokens = torch.cat((tokens, token), 1)
        if (token == end).all():
            break
    assert tokens.shape == (2, 6) and all(0 <= t < end for t in tokens[0].tolist())


def addresses() -> None:
    """Memory that tensors share is theirs alone; sizes go to meta."""
    a, b = nn.Linear(400, 4).cuda(), nn.Linear(400, 4).cuda()
    assert len({x.data_ptr() for m in (a, b) for x in m.parameters()}) == 4
    assert a.weight.view(-1)[8:].data_ptr() == a.weight.data_ptr() + 32
    assert a.weight.detach().untyped_storage().data_ptr() == a.weight.data_ptr() != b.weight.data_ptr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert copy.deepcopy(a).to("meta").weight.is_meta and torch.ones(3).to("meta").is_meta


def ragged() -> None:
    """Jagged tensors."""
    parts = [torch.randn(300, 80), torch.randn(500, 80)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged, device="cuda", requires_grad=True)
    nn.Linear(80, 8).cuda()(x).values().sum().backward()
    assert x.grad is not None and x.grad.device == x.device and x.to_padded_tensor(0.0).shape == (2, 500, 80)


def blocks() -> None:
    """The blocks of a mask that is too large to have data are those that it has."""
    assert torch.histc(torch.arange(8, device="cuda").int() // 4, 2, min=0, max=1).tolist() == [4, 4]
    x = torch.randn(1, 2, 8192, 64, device="cuda", requires_grad=True)
    document = torch.arange(8192, device="cuda") // 2048
    found, attends = [], torch.compile(flex_attention)
    for mask in (lambda b, h, i, j: i >= j, lambda b, h, i, j: document[i] == document[j], None):
        of = mask and create_block_mask(mask, None, None, 8192, 8192)
        before = meter.flops
        out = attends(x, x, x, block_mask=of)
        assert out.device == x.device and out.shape == x.shape
        meter.flush([out])
        found.append(meter.flops - before)
    whole = 4 * 2 * 8192 * 8192 * 64
    assert found == [whole * 65 // 128, whole // 4, whole]
    out.sum().backward()
    assert x.grad is not None


if __name__ == "__main__":
    for what in (reading, sizes, routing, copies, training, files, sequences, loops, addresses, ragged, blocks):
        what()
    print("all is there")
