"""Networks that FX cannot trace, or that keep things on their modules from outside: plain copies of the structure of
what people bring (no code and no weights of theirs)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


class ConvSiLU(nn.Module):
    def __init__(self, c1, c2, k=1, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Split(nn.Module):
    """A block that splits its channels, keeps what each of its parts gives, and joins all (the C2f of YOLO)."""

    def __init__(self, c1, c2, n=1):
        super().__init__()
        self.c = c2 // 2
        self.cv1 = ConvSiLU(c1, c2)
        self.cv2 = ConvSiLU((2 + n) * self.c, c2)
        self.m = nn.ModuleList(
            nn.Sequential(ConvSiLU(self.c, self.c, 3), ConvSiLU(self.c, self.c, 3)) for _ in range(n)
        )

    def forward(self, x):
        y = list(self.cv1(x).chunk(2, 1))
        y.extend(m(y[-1]) for m in self.m)
        return self.cv2(torch.cat(y, 1))


class Join(nn.Module):
    def forward(self, x):
        return torch.cat(x, 1)


class Heads(nn.Module):
    """Boxes and classes of two scales; while it is evaluated, both are decoded and joined."""

    def __init__(self, channels, classes=5, reg=4):
        super().__init__()
        self.reg, self.classes = reg, classes
        self.boxes = nn.ModuleList(nn.Sequential(ConvSiLU(c, 16, 3), nn.Conv2d(16, 4 * reg, 1)) for c in channels)
        self.kinds = nn.ModuleList(nn.Sequential(ConvSiLU(c, 16, 3), nn.Conv2d(16, classes, 1)) for c in channels)
        self.shape = None

    def forward(self, x):
        x = [torch.cat((box(v), kind(v)), 1) for v, box, kind in zip(x, self.boxes, self.kinds, strict=True)]
        if self.training:
            return x
        shape = x[0].shape
        if self.shape != shape:  # anchors are made anew where the shape is another
            self.shape = shape
        joined = torch.cat([v.flatten(2) for v in x], 2)
        box, kind = joined.split((4 * self.reg, self.classes), 1)
        return torch.cat((box.unflatten(1, (4, self.reg)).softmax(2).mean(2), kind.sigmoid()), 1)


class ModuleLoop(nn.Module):
    """A detector whose forward walks its modules by what was written onto them: ``f``, where each takes its input from
    (``-1``: the one before), and ``i``, its number."""

    def __init__(self):
        super().__init__()
        layers = [
            (-1, ConvSiLU(3, 8, 3, 2)),
            (-1, ConvSiLU(8, 16, 3, 2)),
            (-1, Split(16, 16)),
            (-1, ConvSiLU(16, 32, 3, 2)),
            (-1, Split(32, 32)),
            (-1, nn.Upsample(scale_factor=2, mode="nearest")),
            ([-1, 2], Join()),
            (-1, Split(48, 16)),
            (-1, ConvSiLU(16, 16, 3, 2)),
            ([-1, 4], Join()),
            (-1, Split(48, 32)),
            ([7, 10], Heads((16, 32))),
        ]
        for number, (source, layer) in enumerate(layers):
            layer.i, layer.f, layer.type = number, source, type(layer).__name__
        self.model = nn.Sequential(*(layer for _, layer in layers))
        self.save = [2, 4, 7, 10]

    def forward(self, x):
        y = []
        for m in self.model:
            if m.f != -1:
                x = y[m.f] if isinstance(m.f, int) else [x if j == -1 else y[j] for j in m.f]
            x = m(x)
            y.append(x if m.i in self.save else None)
        return x


class Encoder(nn.Module):
    """Text: a mask whose form decides how it is extended, heads by ``view`` on sizes, a pooler (BERT)."""

    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.words, self.places = nn.Embedding(100, dim), nn.Embedding(64, dim)
        self.norm = nn.LayerNorm(dim)
        self.heads = heads
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    **{name: nn.Linear(dim, dim) for name in ("query", "key", "value", "dense")},
                    "norm1": nn.LayerNorm(dim),
                    "up": nn.Linear(dim, 4 * dim),
                    "down": nn.Linear(4 * dim, dim),
                    "norm2": nn.LayerNorm(dim),
                }
            )
            for _ in range(layers)
        )
        self.pooler = nn.Linear(dim, dim)

    def extend(self, mask, shape):
        if mask.dim() == 3:
            extended = mask[:, None, :, :]
        elif mask.dim() == 2:
            extended = mask[:, None, None, :]
        else:
            raise ValueError(f"a mask of shape {tuple(mask.shape)} for inputs of {shape}")
        return (1.0 - extended.float()) * torch.finfo(torch.float32).min

    def forward(self, tokens):
        batch, length = tokens.size()
        if length > self.places.num_embeddings:
            raise ValueError(f"{length} tokens are too many")
        mask = self.extend((tokens > 0).long(), tokens.size())
        x = self.norm(self.words(tokens) + self.places(torch.arange(length, device=tokens.device)))
        for layer in self.layers:
            q, k, v = (
                layer[name](x).view(batch, length, self.heads, -1).permute(0, 2, 1, 3)
                for name in ("query", "key", "value")
            )
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + mask
            context = (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(batch, length, -1)
            x = layer["norm1"](x + layer["dense"](context))
            x = layer["norm2"](x + layer["down"](functional.gelu(layer["up"](x))))
        return torch.tanh(self.pooler(x[:, 0]))


class Patches(nn.Module):
    """A convolutional network with a transformer over patches: folded by integers of the shape (MobileViT)."""

    def __init__(self, dim=24, patch=2):
        super().__init__()
        self.stem = ConvSiLU(3, 16, 3, 2)
        self.local = nn.Sequential(ConvSiLU(16, 16, 3), nn.Conv2d(16, dim, 1, bias=False))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
        self.back, self.fuse = ConvSiLU(dim, 16), ConvSiLU(32, 16, 3)
        self.head = nn.Linear(16, 10)
        self.patch = patch

    def forward(self, x):
        x = self.stem(x)
        y = self.local(x)
        batch, channels, height, width = y.shape
        p = self.patch
        new_height, new_width = math.ceil(height / p) * p, math.ceil(width / p) * p
        if (new_height, new_width) != (height, width):
            y = functional.interpolate(y, size=(new_height, new_width), mode="bilinear", align_corners=False)
        rows, columns = new_height // p, new_width // p
        y = y.reshape(batch * channels * rows, p, columns, p).transpose(1, 2)
        y = y.reshape(batch, channels, rows * columns, p * p).transpose(1, 3).reshape(batch * p * p, -1, channels)
        q, k, v = self.qkv(self.norm1(y)).chunk(3, -1)
        y = y + self.project((q @ k.transpose(-1, -2) / math.sqrt(channels)).softmax(-1) @ v)
        y = y + self.mlp(self.norm2(y))
        y = y.contiguous().view(batch, p * p, rows * columns, channels).transpose(1, 3)
        y = y.reshape(batch * channels * rows, columns, p, p).transpose(1, 2)
        y = y.reshape(batch, channels, rows * p, columns * p)
        x = self.fuse(torch.cat((x, self.back(y)), 1))
        return self.head(x.mean((2, 3)))


class Positions(nn.Module):
    """Sines of places, made in each call for the shape and device at hand."""

    def __init__(self, dim):
        super().__init__()
        self.project = nn.Conv2d(16, dim, 1)

    def forward(self, shape):
        batch, height, width = shape
        mask = torch.zeros(batch, height, width, device=self.project.weight.device).bool()
        y, x = (~mask).cumsum(1, dtype=torch.float32), (~mask).cumsum(2, dtype=torch.float32)
        steps = 100.0 ** (2 * (torch.arange(8, dtype=torch.int64) // 2).to(torch.float32) / 8)
        parts = [axis[..., None] / steps for axis in (y, x)]
        return self.project(torch.cat([part.sin() for part in parts], 3).permute(0, 3, 1, 2))


class Transposed(nn.Module):
    """Channels in groups one after another, attention over channels, depthwise convolutions (EdgeNeXt)."""

    def __init__(self, dim=24, scales=3):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, 4)
        self.width, self.count = math.ceil(dim / scales), scales - 1
        self.convs = nn.ModuleList(
            nn.Conv2d(self.width, self.width, 3, 1, 1, groups=self.width) for _ in range(scales - 1)
        )
        self.positions = Positions(dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.temperature = nn.Parameter(torch.ones(4, 1, 1))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.gamma = nn.Parameter(torch.full((dim,), 0.5))
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.stem(x)
        kept, parts, part = x, torch.split(x, self.width, 1), None
        outputs = []
        for i, conv in enumerate(self.convs):
            part = parts[i] if i == 0 else part + parts[i]
            part = conv(part)
            outputs.append(part)
        x = torch.cat([*outputs, parts[self.count]], 1)
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, -1).permute(0, 2, 1)
        x = x + self.positions((batch, height, width)).reshape(batch, -1, height * width).permute(0, 2, 1)
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, -1, 3, 4, channels // 4).permute(2, 0, 3, 4, 1)
        weights = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1) * self.temperature
        x = x + self.project((weights.softmax(-1) @ v).permute(0, 3, 1, 2).reshape(batch, -1, channels))
        x = x + self.gamma * self.mlp(self.norm2(x))
        return self.head((kept + x.reshape(batch, height, width, channels).permute(0, 3, 1, 2)).mean((2, 3)))


IMAGE = (("image", 3, 32, 32),)
NETWORKS = {
    "module_loop": (ModuleLoop, IMAGE),
    "encoder_with_mask": (Encoder, (("padded", 12),)),
    "patches": (Patches, IMAGE),
    "transposed": (Transposed, IMAGE),
}
