"""In the style of PyTorch's examples, word_language_model: an LSTM whose state goes from batch to batch."""

import math

import torch
from torch import nn

bptt, ntoken, batch_size = 12, 50, 6


class RNNModel(nn.Module):
    def __init__(self, rnn_type, ninp=16, nhid=16, nlayers=2, dropout=0.2):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(dropout), nn.Embedding(ntoken, ninp)
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers
        self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output)).view(-1, ntoken)
        return torch.nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        zeros = weight.new_zeros(self.nlayers, bsz, self.nhid)
        return (zeros, weight.new_zeros(self.nlayers, bsz, self.nhid)) if self.rnn_type == "LSTM" else zeros


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


torch.manual_seed(1111)
for rnn_type in ("LSTM", "GRU"):
    data = torch.randint(0, ntoken, (40, batch_size)).to("cuda")
    model, criterion = RNNModel(rnn_type).to("cuda"), nn.NLLLoss()
    hidden = model.init_hidden(batch_size)
    for i in range(0, data.size(0) - 1, bptt):
        seq_len = min(bptt, len(data) - 1 - i)
        source, targets = data[i : i + seq_len], data[i + 1 : i + 1 + seq_len].view(-1)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(source, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-2.0)
        print(f"loss {loss.item():.17g}")
        print(f"| ppl {math.exp(loss.item()):8.2f}")
