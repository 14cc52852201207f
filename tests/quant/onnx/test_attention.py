"""The products of attention: which they are, what is calibrated for them, and which runtime gets them on bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_networks import Draft, random_inputs, save
from optional_packages import needs_openvino

from qbench.machine import fingerprint
from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import attention, static
from qbench.quant.onnx.export import deploy_model, deploy_openvino
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import prepare
from qbench.quant.onnx.sites import Scales
from qbench.quant.recipe import Recipe

TOKENS, HEADS, WIDTH = 6, 2, 16


def attending(
    *, joined: bool = True, mask: bool = False, tokens: int | str = TOKENS, given: str = "", behind: str = "Softmax"
) -> Draft:
    """Self-attention of two heads behind one product for queries, keys and values (``joined``), or one for each.
    ``given``: "split": the caller gets the values, too; ``behind``: what reads the scores."""
    draft = Draft()
    shape = draft.constant("shape", np.array([0, 0, HEADS, WIDTH // HEADS]))
    if joined:
        wide = draft.add("MatMul", ["x", draft.weight("qkv.weight", WIDTH, 3 * WIDTH)], "qkv")
        wide = draft.add("Add", [wide, draft.bias("qkv.bias", 3 * WIDTH)], "qkv.add")
        sizes = draft.constant("sizes", np.array([WIDTH] * 3))
        draft.add("Split", [wide, sizes], "split", outputs=["q", "k", "v"], axis=2)
        names = ["q", "k", "v"]
    else:
        names = [draft.add("MatMul", ["x", draft.weight(f"{n}.weight", WIDTH, WIDTH)], n) for n in ("q", "k", "v")]
    q, k, v = (draft.add("Reshape", [name, shape], f"{place}.heads") for place, name in zip("qkv", names, strict=True))
    q, v = (draft.add("Transpose", [x], f"{n}.moved", perm=[0, 2, 1, 3]) for n, x in (("q", q), ("v", v)))
    k = draft.add("Transpose", [k], "k.moved", perm=[0, 2, 3, 1])
    q = draft.add("Mul", [q, draft.constant("scale", np.array(0.25, np.float32))], "q.scaled")
    scores = draft.add("MatMul", [q, k], "scores")
    if mask:
        hidden = np.triu(np.full((TOKENS, TOKENS), -1e4, np.float32), 1)
        scores = draft.add("Add", [scores, draft.constant("mask", hidden)], "masked")
    probabilities = draft.add(behind, [scores], "probabilities", **({"axis": -1} if behind == "Softmax" else {}))
    mixed = draft.add("MatMul", [probabilities, v], "mixed")
    mixed = draft.add("Transpose", [mixed], "mixed.moved", perm=[0, 2, 1, 3])
    flat = draft.add("Reshape", [mixed, draft.constant("flat", np.array([0, 0, WIDTH]))], "mixed.flat")
    draft.add("MatMul", [flat, draft.weight("out.weight", WIDTH, WIDTH)], "out", outputs=["y"])
    if given == "split":
        draft.add("Identity", [names[2]], "told", outputs=["values"])
    return draft


def model_of(draft: Draft, tokens: int | str = TOKENS, *, outputs: tuple[str, ...] = ("y",)) -> object:
    return draft.model({"x": ["batch", tokens, WIDTH]}, {name: ["batch", tokens, WIDTH] for name in outputs})


def graph_of(draft: Draft, folder: Path, tokens: int | str = TOKENS, **options: tuple[str, ...]) -> Graph:
    return prepare(save(model_of(draft, tokens, **options), folder))  # type: ignore[arg-type]


def scaled(draft: Draft, folder: Path) -> static.Scaled:
    """With ranges from 32 random examples."""
    model = model_of(draft)
    file = save(model, folder)  # type: ignore[arg-type]
    calibration = random_inputs(model, 32)  # type: ignore[arg-type]
    return static.choose_scales(file, Recipe(), calibration, lambda *_: None)


def deploy(quantized: static.Scaled, file: Path, *, runtime: str = "openvino", **options: Any) -> Graph:
    deploy_model.write(quantized.graph, quantized.sites, quantized.record, file, runtime=runtime, **options)
    return Graph.load(file)


@pytest.fixture
def vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file as for a CPU whose sums of bytes have 32 bits."""
    monkeypatch.setattr(fingerprint, "onednn_isa", lambda: ("avx2", "avx512_vnni"))


def test_both_products_are_found(tmp_path: Path) -> None:
    """That of queries and keys and that of probabilities and values; both come from one Split, the queries scaled."""
    scores, mixed = attention.find_products(graph_of(attending(mask=True), tmp_path))
    assert (scores.name, scores.keys, mixed.name, mixed.keys) == ("scores", 0, "mixed", TOKENS)
    assert scores.sources == {0: ("split", 0.25), 1: ("split", 1.0)}
    assert mixed.sources == {1: ("split", 1.0)}


@pytest.mark.parametrize(
    ("draft", "tokens", "names"),
    [
        (attending(joined=False), TOKENS, ["scores", "mixed"]),
        (attending(behind="Relu"), TOKENS, []),
        (attending(), "tokens", ["scores"]),
    ],
    ids=["three products", "no probabilities", "any number of tokens"],
)
def test_what_is_found_of_others(draft: Draft, tokens: int | str, names: list[str], tmp_path: Path) -> None:
    """Products of their own need no Split; without a Softmax it is no attention; probabilities need a known number."""
    products = attention.find_products(graph_of(draft, tmp_path, tokens))
    assert [product.name for product in products] == names


def test_products_of_their_own_are_rounded_where_they_are_moved_first(tmp_path: Path) -> None:
    """So the matrix product before it gives bytes, and these are moved; scaled behind the move, steps are scaled."""
    scores, mixed = attention.find_products(graph_of(attending(joined=False), tmp_path))
    assert scores.sources == {0: ("q.heads", 0.25), 1: ("k.heads", 1.0)}
    assert mixed.sources == {1: ("v.heads", 1.0)}


def test_a_shape_that_is_read_takes_no_values(tmp_path: Path) -> None:
    """As exporters write attention of any batch size: the shape of a part of the Split says how it is moved."""
    draft = attending()
    sizes = draft.add("Shape", ["v"], "size")
    draft.add("Cast", [sizes], "sizes.told", outputs=["told"], to=1)
    model = draft.model({"x": ["batch", TOKENS, WIDTH]}, {"y": ["batch", TOKENS, WIDTH], "told": [3]})
    scores, mixed = attention.find_products(prepare(save(model, tmp_path)))
    assert scores.sources == {0: ("split", 0.25), 1: ("split", 1.0)}
    assert mixed.sources == {1: ("split", 1.0)}


def test_a_split_that_others_read_has_no_range(tmp_path: Path) -> None:
    """What the caller is given of it would be rounded."""
    graph = graph_of(attending(given="split"), tmp_path, outputs=("y", "values"))
    assert [product.sources for product in attention.find_products(graph)] == [{}, {}]
    assert list(attention.find_inputs(graph)) == [("scores", 0), ("scores", 1), ("mixed", 0), ("mixed", 1)]


def test_what_a_convolution_gives_is_left_to_the_rules_of_convolutions(tmp_path: Path) -> None:
    """It is quantized for ONNX Runtime, whether or not a product reads it."""
    draft = Draft()
    a, b = (draft.conv("x", name, 4, 4) for name in ("a", "b"))
    draft.add("Softmax", [draft.add("MatMul", [a, b], "scores")], "end", outputs=["y"], axis=-1)
    model = draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 8, 8]})
    assert attention.find_products(prepare(save(model, tmp_path))) == ()


def test_a_matrix_that_is_inverted_step_by_step_stays_float(tmp_path: Path) -> None:
    """As in Nystroemformer: what such products give is subtracted from almost its own size."""
    draft = Draft()
    q, k, v = (draft.add("MatMul", ["x", draft.weight(f"{n}.weight", WIDTH, WIDTH)], n) for n in ("q", "k", "v"))
    k = draft.add("Transpose", [k], "k.moved", perm=[0, 2, 1])
    p = draft.add("Softmax", [draft.add("MatMul", [q, k], "scores")], "probabilities", axis=-1)
    z = draft.add("Transpose", [p], "first", perm=[0, 2, 1])
    for step in ("step", "next"):
        product = draft.add("MatMul", [p, z], step)
        seven = draft.constant(f"{step}.seven", np.eye(TOKENS, dtype=np.float32) * 7)
        z = draft.add("MatMul", [z, draft.add("Sub", [seven, product], f"{step}.rest")], f"{step}.inverse")
    last = draft.add("MatMul", [draft.add("MatMul", [p, z], "inverted"), v], "mixed")
    draft.add(
        "MatMul", [draft.add("MatMul", [p, last], "again"), draft.weight("w", WIDTH, WIDTH)], "end", outputs=["y"]
    )
    names = [product.name for product in attention.find_products(graph_of(draft, tmp_path))]
    assert names == ["scores"]


def quantized_places(graph: Graph) -> set[tuple[str, int]]:
    """Of these products and their Split, the inputs that come from bytes."""
    return {
        (node.name, i)
        for node in graph.nodes
        if node.name in ("scores", "mixed", "split")
        for i, name in enumerate(node.input)
        if (maker := graph.maker(name)) is not None and maker.op_type == "DequantizeLinear"
    }


ALL = {("split", 0), ("scores", 0), ("scores", 1), ("mixed", 0), ("mixed", 1)}


def params_of(deployed: Graph) -> dict[tuple[str, int], tuple[float, int, np.dtype]]:
    """Step, zero point and type of what each place reads."""
    params = {}
    for name, i in ALL:
        _, scale, zero = deployed.maker(deployed.node(name).input[i]).input
        step, offset = deployed.constant(scale), deployed.constant(zero)
        params[name, i] = (step.item(), offset.item(), offset.dtype)
    return params


@pytest.mark.usefixtures("vnni")
def test_openvino_multiplies_bytes_that_are_rounded_once(tmp_path: Path) -> None:
    """Queries, keys and values have the steps of the Split, times what scales them; probabilities begin at 0."""
    quantized = scaled(attending(), tmp_path)
    deployed = deploy(quantized, tmp_path / "int8.onnx")
    assert quantized_places(deployed) == ALL
    params = params_of(deployed)
    step, zero, kind = params["split", 0]
    assert (zero, kind) == (0, np.int8)
    assert params["scores", 0] == (pytest.approx(0.25 * step), 0, np.int8)
    assert params["scores", 1] == params["mixed", 1] == (pytest.approx(step), 0, np.int8)
    assert params["mixed", 0][1:] == (0, np.uint8)


@pytest.mark.usefixtures("vnni")
@pytest.mark.parametrize(("narrow", "times"), [(True, 2), (False, 1)])
def test_cpus_that_add_in_16_bits_get_seven_bits_of_keys_and_values(narrow: bool, times: int, tmp_path: Path) -> None:
    """Two activations have no weights to narrow; queries and probabilities keep their steps, and
    ``narrow_weights: false`` keeps all."""
    quantized = scaled(attending(), tmp_path)
    plain = params_of(deploy(quantized, tmp_path / "int8.onnx"))
    older = params_of(deploy(quantized, tmp_path / "older.onnx", target=("avx2", "vnni"), narrow_weights=narrow))
    for place, (step, zero, kind) in plain.items():
        factor = times if place in (("scores", 1), ("mixed", 1)) else 1
        assert older[place] == (pytest.approx(factor * step), zero, kind)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("joined", [True, False])
@needs_openvino
def test_openvino_computes_what_the_file_says(joined: bool, mask: bool, tmp_path: Path) -> None:
    """Within 25 dB of fp32, with a batch of any size and masked scores."""
    draft = attending(joined=joined, mask=mask)
    quantized = scaled(draft, tmp_path)
    deploy(quantized, tmp_path / "int8.onnx")
    inputs = random_inputs(model_of(draft), 4, seed=9)  # type: ignore[arg-type]
    outputs = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), inputs)
    expected = openvino_model.run(openvino_model.compile_file(tmp_path / "model.onnx"), inputs)
    assert 10 * np.log10((expected**2).sum() / ((outputs - expected) ** 2).sum()) > 25


@pytest.mark.usefixtures("vnni")
@pytest.mark.parametrize(("runtime", "target"), [("onnxruntime", ()), ("openvino", ("vnni", "arm"))])
def test_others_get_floats(runtime: str, target: tuple[str, ...], tmp_path: Path) -> None:
    """ONNX Runtime and OpenVINO on ARM gain nothing."""
    quantized = scaled(attending(), tmp_path)
    assert quantized_places(deploy(quantized, tmp_path / "int8.onnx", runtime=runtime, target=target)) == set()


def test_a_cpu_without_vnni_gets_floats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It gains nothing either; so the switch of oneDNN tells it, too."""
    monkeypatch.setattr(fingerprint, "onednn_isa", lambda: ("avx2",))
    assert quantized_places(deploy(scaled(attending(), tmp_path), tmp_path / "int8.onnx")) == set()


@pytest.mark.usefixtures("vnni")
@pytest.mark.parametrize(("step", "kept"), [(1 / 13, True), (1 / 11, False)])
def test_probabilities_keep_two_steps_of_an_even_row(step: float, kept: bool, tmp_path: Path) -> None:
    """Of six keys each has 1/6: with a step of more than 1/12 the product of values stays float, and so does the Split
    that gives them; that of queries and keys does not read probabilities."""
    quantized = scaled(attending(), tmp_path)
    record = {**quantized.record, "mixed:0": Scales(scale_d=step, offset_d=-128)}
    deploy_model.write(quantized.graph, quantized.sites, record, tmp_path / "int8.onnx", runtime="openvino")
    places = quantized_places(Graph.load(tmp_path / "int8.onnx"))
    assert places == (ALL if kept else {("scores", 0), ("scores", 1)})
    assert deploy_openvino.LEAST_STEPS == 2
