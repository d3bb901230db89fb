"""In the style of PyTorch's tutorial on translation: GRUs, packed sequences, attention, teacher forcing."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding, self.gru = (
            nn.Embedding(vocab, dim, padding_idx=0),
            nn.GRU(dim, dim, batch_first=True, bidirectional=True),
        )
        self.join = nn.Linear(2 * dim, dim)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        out, hidden = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return self.join(out), torch.tanh(self.join(torch.cat((hidden[0], hidden[1]), 1)))[None]


class Decoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding, self.cell, self.out = nn.Embedding(vocab, dim), nn.GRUCell(2 * dim, dim), nn.Linear(dim, vocab)

    def forward(self, token, hidden, memory, mask):
        scores = torch.bmm(memory, hidden[0][:, :, None]).squeeze(-1).masked_fill(mask, float("-inf"))
        context = torch.bmm(F.softmax(scores, -1)[:, None], memory).squeeze(1)
        hidden = self.cell(torch.cat((self.embedding(token), context), 1), hidden[0])[None]
        return F.log_softmax(self.out(hidden[0]), -1), hidden


torch.manual_seed(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
encoder, decoder = Encoder(30, 16).to(device), Decoder(30, 16).to(device)
optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
for _ in range(4):
    lengths = torch.randint(3, 9, (5,))
    source = pad_sequence([torch.randint(1, 30, (int(n),)) for n in lengths], batch_first=True).to(device)
    target = torch.randint(1, 30, (5, 6)).to(device)
    memory, hidden = encoder(source, lengths)
    mask, token, loss = source == 0, target[:, 0], 0
    for t in range(1, target.size(1)):
        logp, hidden = decoder(token, hidden, memory, mask[:, : memory.size(1)])
        loss = loss + F.nll_loss(logp, target[:, t])
        token = target[:, t] if torch.rand(()) < 0.5 else logp.topk(1)[1].squeeze(-1).detach()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.17g}")
