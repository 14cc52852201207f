"""`qbench init` for language models: documents, a tokenizer and a model that gives logits of each position."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import TensorProto, helper, numpy_helper, save

from qbench import suite
from qbench.errors import UsageError
from qbench.first_suite.document_facts import explain_no_logits, has_documents
from qbench.first_suite.model_facts import InputFacts, ModelFacts
from qbench.first_suite.write_suite import write_first_suite

np = pytest.importorskip("numpy")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers (extra zoo)")
WORDS = ["[UNK]", "a", "good", "bad", "film"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a user works, with 16 documents and a tokenizer."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": f"a {'good ' * number}film"}) for number in range(16)]
    for split in ("train", "test"):
        (tmp_path / "docs" / split).mkdir(parents=True)
        for number, line in enumerate(lines):
            (tmp_path / "docs" / split / f"{number}.txt").write_text(f"{json.loads(line)['text']} {split}")
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def save_model(place: Path, *, axes: int = 3) -> str:
    """A model of 8 token ids: a row of logits of each, or their mean."""
    table = numpy_helper.from_array(np.eye(len(WORDS), dtype=np.float32), "table")
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["all"])]
    if axes == 2:
        nodes += [helper.make_node("ReduceMean", ["all"], ["logits"], axes=[1], keepdims=0)]
    else:
        nodes += [helper.make_node("Relu", ["all"], ["logits"])]
    shape = ["n", 8, len(WORDS)] if axes == 3 else ["n", len(WORDS)]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        [table],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), place / "decoder.onnx")
    return "decoder.onnx"


@pytest.mark.parametrize("data", ["docs", "docs.jsonl"])
def test_documents_and_a_decoder_make_a_suite(place: Path, data: str) -> None:
    """It reads as any suite does: windows as long as the model's input, judged by the tokens that flip."""
    written = write_first_suite(save_model(place), data, None)
    read = suite.read(written.file)
    assert (read.data.loader, read.data.value) == ("texts", data)
    assert read.data.options == {"tokenizer": "tokenizer.json", "length": 8, "tokens": ["ids"]}
    assert "metric: token_flips, margin: 1.0" in written.file.read_text()
    assert any("taken as logits" in note for note in written.notes)


def test_a_model_without_logits_is_held_against_fp32(place: Path) -> None:
    """Labels of tokens say nothing of an embedding."""
    text = write_first_suite(save_model(place, axes=2), "docs", None).file.read_text()
    assert "metric: sqnr, at_least: 20" in text
    assert "logits of each token have three" in text


def test_documents_need_the_tokenizer(place: Path) -> None:
    """It is looked for beside them."""
    (place / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"put its tokenizer\.json beside it"):
        write_first_suite(save_model(place), "docs", None)


def takes(*dtypes: str, sizes: tuple[int | None, ...] = ()) -> ModelFacts:
    """A model with inputs of these types."""
    inputs = tuple(InputFacts(name=name, dtype=name, sizes=(None, 8)) for name in dtypes)
    return ModelFacts(name="m", source="", backends=(), int8_modes=(), inputs=inputs, output_sizes=sizes)


@pytest.mark.parametrize(
    ("lies", "data", "expected"),
    [
        ("d/a.txt", "d", True),
        ("d/train/a.txt", "d", True),
        ("d/a.jsonl", "d", True),
        ("d/a/b/c.txt", "d", False),
        ("d/train/a.jsonl", "d", False),
        ("d/a.csv", "d", False),
        ("a.jsonl", "a.jsonl", True),
        ("a.JSONL", "a.JSONL", True),
        ("a.txt", "a.txt", False),
    ],
)
def test_documents_are_known_by_their_endings(tmp_path: Path, lies: str, data: str, expected: bool) -> None:
    """In a folder, or one of a split; a model of floats takes none, one that does not tell may."""
    (tmp_path / lies).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / lies).touch()
    assert has_documents(tmp_path / data, takes()) == expected
    assert has_documents(tmp_path / data, takes("int64", "int64")) == expected
    assert not has_documents(tmp_path / data, takes("int64", "float32"))


@pytest.mark.parametrize(("sizes", "said"), [((), False), ((None, 8, 5), False), ((None, 5), True), ((1,) * 4, True)])
def test_logits_have_three_axes(sizes: tuple[int | None, ...], said: bool) -> None:
    """A file that does not tell may hold them."""
    reason = explain_no_logits(takes(sizes=sizes))
    assert (reason is not None) == said
    assert reason is None or f"has {len(sizes)} axes" in reason
