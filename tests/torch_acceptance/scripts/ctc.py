"""In the style of DeepSpeech: convolutions, a bidirectional LSTM on packed lengths, batch norms between, CTC."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BatchRNN(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.norm, self.rnn = nn.BatchNorm1d(i), nn.LSTM(i, h, bidirectional=True, bias=True)

    def forward(self, x, lengths):
        t, n, f = x.shape
        x = self.norm(x.view(t * n, f)).view(t, n, f)
        x, _ = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        x, _ = pad_packed_sequence(x)
        return x.view(x.size(0), x.size(1), 2, -1).sum(2)


class DeepSpeech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 4, (5, 5), (2, 2), (2, 2)), nn.BatchNorm2d(4), nn.Hardtanh(0, 20, inplace=True)
        )
        self.rnns, self.fc = nn.ModuleList([BatchRNN(32, 16), BatchRNN(16, 16)]), nn.Linear(16, 10)

    def forward(self, x, lengths):
        lengths = (lengths + 1) // 2
        x = self.conv(x)
        x = x.view(x.size(0), -1, x.size(3)).permute(2, 0, 1).contiguous()
        for rnn in self.rnns:
            x = rnn(x, lengths)
        return self.fc(x).log_softmax(-1), lengths


torch.manual_seed(0)
model = DeepSpeech().to("cuda")
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, nesterov=True)
for step in range(3):
    lengths = torch.tensor([40, 32, 36, 28])
    spectrograms = torch.rand(4, 1, 16, 40)
    targets, target_lengths = torch.randint(1, 10, (4 * 5,)), torch.tensor([5, 5, 5, 5])
    out, output_lengths = model(spectrograms.to("cuda"), lengths)
    loss = criterion(out.float(), targets, output_lengths, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 400)
    optimizer.step()
    print(f"loss {loss.item():.17g}")
