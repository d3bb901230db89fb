"""In the style of PyTorch's examples, time_sequence_prediction: LSTM cells, float64, and LBFGS with its closure."""

import numpy as np
import torch
from torch import nn, optim


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 7), nn.LSTMCell(7, 7), nn.Linear(7, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 7, dtype=torch.double, device=input.device)
        c_t, h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(h_t), torch.zeros_like(h_t)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


np.random.seed(0)
torch.manual_seed(0)
x = np.sin(np.arange(12)[None] / 4 + np.random.randint(0, 20, (6, 1)))
data = torch.from_numpy(x).cuda()
seq, criterion = Sequence().double().cuda(), nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.5, max_iter=4)
for step in range(2):

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(data[3:, :-1]), data[3:, 1:])
        print(f"loss {loss.item():.17g}")
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        pred = seq(data[:3, :-1], future=4)
        y = pred.detach().cpu().numpy()
