"""In the style of PyTorch's recipe for AMP: float16, a scaler, accumulated gradients, clipping, a penalty."""

import torch

in_size, batch = 32, 16
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(in_size, in_size), torch.nn.ReLU(), torch.nn.Linear(in_size, in_size)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
loss_fn = torch.nn.MSELoss().cuda()
data = [torch.randn(batch, in_size, device="cuda") for _ in range(8)]
targets = [torch.randn(batch, in_size, device="cuda") for _ in range(8)]
for i, (input, target) in enumerate(zip(data, targets, strict=True)):
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        output = net(input)
        assert output.dtype is torch.bfloat16
        loss = loss_fn(output, target.to(output.dtype)) / 2
    scaler.scale(loss).backward()
    if (i + 1) % 2 == 0:
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.5)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        print(f"loss {loss.item():.17g}")
checkpoint = {"model": net.state_dict(), "optimizer": opt.state_dict(), "scaler": scaler.state_dict()}
net.load_state_dict(checkpoint["model"])
scaler.load_state_dict(checkpoint["scaler"])
print(f"loss {scaler.get_scale():.17g}")
