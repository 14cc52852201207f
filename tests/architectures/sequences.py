"""Networks over signals and sequences: one-dimensional convolutions and recurrent layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # as people write it
from images import conv_bn
from torch import nn

VOCABULARY = 100


def cnn_1d() -> nn.Module:
    """A classifier of signals: Conv1d, BatchNorm1d, MaxPool1d."""
    return nn.Sequential(
        nn.Conv1d(2, 16, 7, 2, 3), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 6),
    )  # fmt: skip


class TextCNN(nn.Module):
    """Convolutions of three widths over embedded tokens, the maximum over time."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.convs = nn.ModuleList([nn.Conv1d(width, 24, k) for k in (3, 4, 5)])
        self.dropout, self.fc = nn.Dropout(0.3), nn.Linear(72, 4)

    def forward(self, tokens):
        x = self.embedding(tokens).permute(0, 2, 1)
        pooled = [F.relu(conv(x)).max(dim=2)[0] for conv in self.convs]
        return self.fc(self.dropout(torch.cat(pooled, dim=1)))


class WaveNet(nn.Module):
    """Causal dilated convolutions by padding on the left, gated by tanh and sigmoid, with skips."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.dilations = (1, 2, 4, 8)
        self.filters = nn.ModuleList([nn.Conv1d(width, width, 2, dilation=d) for d in self.dilations])
        self.gates = nn.ModuleList([nn.Conv1d(width, width, 2, dilation=d) for d in self.dilations])
        self.mixes = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in self.dilations])
        self.last = nn.Conv1d(width, 8, 1)

    def forward(self, x):
        x, skips = self.first(x), 0
        for dilation, conv, gate, mix in zip(self.dilations, self.filters, self.gates, self.mixes, strict=True):
            padded = F.pad(x, (dilation, 0))
            y = mix(torch.tanh(conv(padded)) * torch.sigmoid(gate(padded)))
            skips = skips + y
            x = x + y
        return self.last(F.relu(skips))


class TCN(nn.Module):
    """Weight-normed causal convolutions that pad both sides and cut the right one off."""

    def __init__(self, width: int = 16):
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm
        self.conv1 = normed(nn.Conv1d(2, width, 3, padding=2))
        self.conv2 = normed(nn.Conv1d(width, width, 3, padding=4, dilation=2))
        self.down, self.out = nn.Conv1d(2, width, 1), nn.Linear(width, 4)

    def forward(self, x):
        y = F.relu(self.conv1(x)[:, :, :-2].contiguous())
        y = F.relu(self.conv2(y)[:, :, :-4].contiguous())
        return self.out(F.relu(y + self.down(x))[:, :, -1])


def ds_cnn() -> nn.Module:
    """Keyword spotting: depthwise separable convolutions over a spectrogram, an uneven kernel first."""
    blocks = [nn.Sequential(conv_bn(32, 32, 3, groups=32), conv_bn(32, 32, 1)) for _ in range(3)]
    stem = nn.Sequential(nn.Conv2d(1, 32, (10, 4), (2, 2), (5, 1), bias=False), nn.BatchNorm2d(32), nn.ReLU())
    pool = nn.AvgPool2d((25, 5))
    return nn.Sequential(stem, nn.Dropout(0.2), *blocks, pool, nn.Flatten(), nn.Linear(32, 12))


class LSTMTagger(nn.Module):
    """A bidirectional LSTM over tokens, one score per token and tag."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(48, 5)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return F.log_softmax(self.tags(states), dim=-1)


class GRUClassifier(nn.Module):
    """A GRU from a state that is given, whose last state is classified."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.gru, self.fc = nn.GRU(width, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x):
        state = torch.zeros(1, x.size(0), 32)
        _, last = self.gru(x, state)
        return self.fc(last[-1])


class PackedLSTM(nn.Module):
    """``pack_padded_sequence`` by lengths that are an input, and back."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(width, 24, batch_first=True), nn.Linear(24, 4)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=x.size(1))
        return self.fc(padded.sum(1) / lengths.unsqueeze(1))


class CellLoop(nn.Module):
    """LSTMCell and GRUCell in a loop over time, written by hand."""

    def __init__(self, width: int = 12):
        super().__init__()
        self.lstm, self.gru, self.fc = nn.LSTMCell(width, 16), nn.GRUCell(16, 16), nn.Linear(16, 3)

    def forward(self, x):
        h = c = g = torch.zeros(x.size(0), 16)
        for step in range(x.size(1)):
            h, c = self.lstm(x[:, step], (h, c))
            g = self.gru(h, g)
        return self.fc(g)


class CRNN(nn.Module):
    """OCR: convolutions, columns as time steps, a bidirectional LSTM, classes last."""

    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            conv_bn(1, 16), nn.MaxPool2d(2, 2), conv_bn(16, 32), nn.MaxPool2d((2, 1)), conv_bn(32, 32),
            nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.rnn, self.fc = nn.LSTM(32, 24, bidirectional=True, batch_first=True), nn.Linear(48, 12)

    def forward(self, x):
        x = self.cnn(x).squeeze(2).permute(0, 2, 1)
        return self.fc(self.rnn(x)[0])


NETWORKS = {
    "cnn_1d": (cnn_1d, [("vector", 2, 64)]),
    "text_cnn": (TextCNN, [("tokens", 20)]),
    "wavenet": (WaveNet, [("vector", 1, 64)]),
    "tcn": (TCN, [("vector", 2, 32)]),
    "ds_cnn": (ds_cnn, [("image", 1, 49, 10)]),
    "lstm_tagger": (LSTMTagger, [("tokens", 12)]),
    "gru": (GRUClassifier, [("vector", 10, 16)]),
    "packed_lstm": (PackedLSTM, [("vector", 10, 16), ("lengths", 10)]),
    "cell_loop": (CellLoop, [("vector", 5, 12)]),
    "crnn": (CRNN, [("image", 1, 16, 32)]),
}
