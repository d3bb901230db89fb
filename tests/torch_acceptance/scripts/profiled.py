"""In the style of PyTorch's recipes: a loop under the profiler's schedule, ranges, and the time of a Timer."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 196, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
traces = []
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=lambda p: traces.append(len(p.key_averages())),
    record_shapes=True,
) as prof:
    for step in range(5):
        with record_function("train_step"):
            inputs, labels = torch.rand(4, 3, 16, 16).cuda(), torch.randint(0, 10, (4,)).cuda()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        prof.step()
        print(f"loss {loss.item():.17g}")
assert traces and traces[0] > 10, traces
