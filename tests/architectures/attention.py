"""Networks of attention and token mixing, over patches and over text."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  # as people write it
from torch import nn

VOCABULARY, LENGTH = 100, 16


class ViT(nn.Module):
    """Norm first, a class token, learned positions, ``nn.TransformerEncoder`` on batch-first tokens."""

    def __init__(self, width: int = 48, depth: int = 2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.encoder(x)[:, 0]))


class Window(nn.Module):
    """Attention inside windows of a map, with a bias by position and a cyclic shift."""

    def __init__(self, width: int, size: int, shift: int, heads: int = 4):
        super().__init__()
        self.size, self.shift, self.heads = size, shift, heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(heads, size * size, size * size) * 0.1)

    def forward(self, x):
        n, h, w, c = x.shape
        x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2)) if self.shift else x
        s = self.size
        x = x.view(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
        q, k, v = self.qkv(x).reshape(-1, s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + self.bias.unsqueeze(0)
        x = self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, s * s, c))
        x = x.view(n, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return torch.roll(x, (self.shift, self.shift), dims=(1, 2)) if self.shift else x


class SwinBlock(nn.Module):
    def __init__(self, width: int, size: int, shift: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Window(width, size, shift)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """Shifted windows, and merging of patches by strided slices."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(SwinBlock(width, 4, 0), SwinBlock(width, 4, 2))
        self.merge_norm, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x):
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        corners = [x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        x = self.merge(self.merge_norm(torch.cat(corners, -1)))
        return self.head(x.mean(dim=(1, 2)))


class MixerBlock(nn.Module):
    def __init__(self, width: int, tokens: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)  # used twice, before each of the two
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm(x))


class MLPMixer(nn.Module):
    """Linear over tokens and over channels in turn; one LayerNorm serves both halves of a block."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(MixerBlock(width, 16), MixerBlock(width, 16))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class PaddedEncoder(nn.Module):
    """``nn.TransformerEncoder`` with ``src_key_padding_mask`` made of the token 0, and a masked mean."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(1, LENGTH, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.encoder(self.embedding(tokens) + self.positions, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).to(x.dtype)
        return self.head((x * kept).sum(1) / kept.sum(1).clamp(min=1))


class CausalBlock(nn.Module):
    def __init__(self, width: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (
            part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(n, t, c))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Causal attention by ``scaled_dot_product_attention``; the head's weight is the table of the embedding."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(CausalBlock(width), CausalBlock(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.positions(places))
        return self.head(self.norm(x))[:, -1]


class MaskedGPT(nn.Module):
    """Causal attention written by hand: a triangular buffer, ``masked_fill`` with -inf, softmax."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, LENGTH, LENGTH))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, tokens):
        x = self.embedding(tokens)
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / math.sqrt(x.shape[-1])
        scores = scores.masked_fill(self.mask == 0, float("-inf"))
        x = x + F.softmax(scores, dim=-1) @ self.v(x)
        return self.head(self.norm(x)[:, -1])


class AdditiveMask(nn.Module):
    """A mask of -inf that is added to the scores, from a boolean that the input decides."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 5)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        hidden = (tokens == 0).unsqueeze(1)
        mask = torch.zeros(hidden.shape, dtype=x.dtype).masked_fill(hidden, float("-inf"))
        weights = torch.softmax(q @ k.transpose(1, 2) * 0.2 + mask, -1)
        return self.head((weights @ v + x).mean(1))


class EinsumAttention(nn.Module):
    """Linear layers around two einsums of activations."""

    def __init__(self, width: int = 48, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.to_qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 10)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (part.reshape(n, t, self.heads, -1) for part in self.to_qkv(x).chunk(3, dim=-1))
        weights = torch.einsum("bihd,bjhd->bhij", q, k).mul(0.3).softmax(-1)
        y = torch.einsum("bhij,bjhd->bihd", weights, v).reshape(n, t, -1)
        return self.out(y).mean(1)


class Bmm(nn.Module):
    """``torch.bmm`` and ``baddbmm`` between Linear layers."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        left, right = self.left(x), torch.relu(self.right(x))
        affinity = torch.bmm(left, right.transpose(1, 2)) / 8
        x = torch.baddbmm(x, torch.tanh(affinity), right, alpha=0.5)
        return self.out(x).sum(1)


class MultiheadCross(nn.Module):
    """``nn.MultiheadAttention`` of two inputs (cross attention), sequence first."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, query, memory):
        q, m = query.transpose(0, 1), memory.transpose(0, 1)
        attended, _ = self.attention(q, m, m, need_weights=False)
        return self.out(self.norm(q + attended).mean(0))


class Decoder(nn.Module):
    """``nn.TransformerDecoder`` with a causal mask of floats over target tokens and memory."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, 4, 64, batch_first=True), 1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))
        self.out = nn.Linear(width, 8)

    def forward(self, tokens, memory):
        return self.out(self.decoder(self.embedding(tokens), memory, tgt_mask=self.mask)[:, -1])


NETWORKS = {
    "vit": (ViT, [("image", 3, 32, 32)]),
    "swin": (Swin, [("image", 3, 32, 32)]),
    "mlp_mixer": (MLPMixer, [("image", 3, 32, 32)]),
    "padded_encoder": (PaddedEncoder, [("padded", LENGTH)]),
    "gpt_tied": (GPT, [("tokens", LENGTH)]),
    "gpt_masked": (MaskedGPT, [("tokens", LENGTH)]),
    "additive_mask": (AdditiveMask, [("padded", LENGTH)]),
    "einsum_attention": (EinsumAttention, [("vector", 12, 48)]),
    "bmm": (Bmm, [("vector", 12, 32)]),
    "cross_attention": (MultiheadCross, [("vector", 6, 32), ("vector", 10, 32)]),
    "decoder": (Decoder, [("tokens", LENGTH), ("vector", 10, 32)]),
}
