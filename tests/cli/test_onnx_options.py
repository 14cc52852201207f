"""Rules of qbench/cli/onnx_options.py: what is made of the options of ``qbench onnx``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench.cli import onnx_options
from qbench.cli.onnx_options import Chosen, chosen, form, perhaps, rules, takes, targets
from qbench.errors import BuildError, DataError, ModelError, QbenchError, UsageError
from qbench.onnx.calibration_data import Source, Wanted
from qbench.quant.onnx.formats.rules import PRESETS, ActivationRule, Rules, WeightRule

ANY_SIZE, OF_FOUR = (Wanted(inputs=(), batch_size=size) for size in (None, 4))


def test_without_options_the_rules_are_the_presets() -> None:
    """AMCT's defaults where none is named."""
    assert rules() == Rules()
    assert {name: rules(preset=name) for name in PRESETS} == dict(PRESETS)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"skip_layers": ["a,b", ",c,"]}, {"skip_layers": ("a", "b", "c")}),
        ({"skip_types": ["Gemm"]}, {"skip_layer_types": ("Gemm",)}),
        ({"batch_num": 7}, {"batch_num": 7}),
        ({"symmetric": True}, {"activation_offset": False}),
        ({"balance": 0.0}, {"balance": 0.0}),
        ({"bias_correction": True}, {"bias_correction": True}),
        ({"no_fusion": True}, {"do_fusion": False}),
    ],
)
def test_an_option_goes_over_the_preset(options: dict[str, Any], changes: dict[str, Any]) -> None:
    """And changes nothing else."""
    assert vars(rules(**options)) == vars(Rules()) | changes


def test_a_calibrator_and_a_rounding_of_weights_go_over_those_of_every_layer() -> None:
    """Each leaves the other as it is."""
    assert rules(calibrator="hfmg").common.activation == ActivationRule(algorithm="hfmg")
    assert rules(calibrator="hfmg").common.weight == Rules().common.weight
    assert rules(weights="ada_quantize").common.weight == WeightRule(algorithm="ada_quantize")
    assert rules(weights="ada_quantize").common.activation == Rules().common.activation


def test_what_a_file_of_amcts_says_is_added_to(tmp_path: Path) -> None:
    """Layers that it skips stay skipped, and what the command line does not name stays as it says."""
    file = tmp_path / "a.cfg"
    file.write_text(
        'batch_num: 3 activation_offset: false do_fusion: false skip_layers: "a" skip_layer_types: "MatMul"'
    )
    chosen = rules(preset=str(file), skip_layers=["b"], skip_types=["Gemm"])
    assert (chosen.skip_layers, chosen.skip_layer_types) == (("a", "b"), ("MatMul", "Gemm"))
    assert (chosen.batch_num, chosen.activation_offset, chosen.do_fusion) == (3, False, False)
    assert rules(preset=str(file), batch_num=5).batch_num == 5


def from_source(examples: int | None, monkeypatch: pytest.MonkeyPatch, size: int | None = None) -> Chosen:
    """Data of so many examples, in batches of a size."""
    source = Source(name="d", examples=examples, read=lambda index: (index,))
    monkeypatch.setattr(Chosen, "_source", lambda self, wanted: source)
    return Chosen(where="d", options=None, split=None, batch_size=size)


@pytest.mark.parametrize(
    ("available", "size", "examples", "wanted", "sizes"),
    [
        (100, 8, 16, ANY_SIZE, [8, 8]),
        (100, 8, 17, ANY_SIZE, [8, 8, 8]),
        (20, 8, 100, ANY_SIZE, [8, 8]),
        (100, None, 1, ANY_SIZE, [32]),
        (100, None, 9, OF_FOUR, [4, 4, 4]),
        (100, 8, 0, ANY_SIZE, [8]),
    ],
)
def test_the_first_batches_hold_as_many_examples_as_are_asked_for(
    available: int, size: int | None, examples: int, wanted: Wanted, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole batches, one at least, no more than there are."""
    batches = list(from_source(available, monkeypatch, size).first(wanted, examples)())
    assert [len(batch[0]) for batch in batches] == sizes


def test_batches_are_as_many_as_are_asked_for_or_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn by the seed; of the size that a model demands."""
    data = from_source(100, monkeypatch, 10)
    (make, number), (default, needed) = (data.batches(ANY_SIZE, count) for count in (2, None))
    assert (number, needed, len(list(make())), len(list(default()))) == (2, 10, 2, 10)
    first, same, other = (np.concatenate([b[0] for b in data.batches(ANY_SIZE, 2, seed=s)[0]()]) for s in (0, 0, 1))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    with pytest.raises(DataError, match="the model takes 4 at once"):
        from_source(3, monkeypatch).batches(OF_FOUR, None)


def test_the_first_example_is_one_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function may make no batch."""
    assert len(from_source(100, monkeypatch, 2).example(ANY_SIZE)[0]) == 2
    nothing = Source(name="f", examples=None, read=lambda index: (), open_batches=lambda: iter(()))
    monkeypatch.setattr(Chosen, "_source", lambda self, wanted: nothing)
    with pytest.raises(DataError, match="--data d: it gives no batch"):
        Chosen(where="d", options=None, split=None, batch_size=None).example(ANY_SIZE)


def test_data_may_be_left_out_where_a_command_says_so() -> None:
    """Otherwise both are the same."""
    assert perhaps(None, ["a=1"], "test", 4) is None
    assert perhaps("d", ["a=1"], "test", 4) == chosen("d", ["a=1"], "test", 4)


def test_targets_are_named_once_and_onnxruntime_is_the_first_choice() -> None:
    """In the order given."""
    assert targets(None) == ("onnxruntime",)
    assert targets([]) == ("onnxruntime",)
    assert targets(["ascend", "onnxruntime", "ascend"]) == ("ascend", "onnxruntime")
    assert (form(None), form("U8U8")) == (None, "U8U8")


def test_options_of_data_are_read_as_yaml() -> None:
    """Numbers, lists, words; an equals sign belongs to the value."""
    values = onnx_options._options(["size=224", "mean=[0.5, 1]", "order=bgr", "a=b=c", "none="])
    assert values == {"size": 224, "mean": [0.5, 1], "order": "bgr", "a": "b=c", "none": None}
    assert onnx_options._options(None) == {}
    for text in ("=1", "size"):
        with pytest.raises(UsageError, match=f"--set {text}: expected KEY=VALUE"):
            onnx_options._options([text])


def test_a_command_gets_what_is_made_of_its_options() -> None:
    """The options of each function stand in the place of the parameter that takes what it makes."""
    given: dict[str, Any] = {}

    def make(left: int, right: int = 2) -> tuple[int, int]:
        return left, right

    @takes(pair=make)
    def command(name: str, pair: Any, *, loud: bool = False) -> None:
        given.update(name=name, pair=pair, loud=loud)

    assert list(inspect.signature(command).parameters) == ["name", "left", "right", "loud"]
    assert command.__annotations__ == {"name": str, "left": int, "right": int, "loud": bool}
    command(name="n", left=1, right=3, loud=True)
    assert given == {"name": "n", "pair": (1, 3), "loud": True}


@pytest.mark.parametrize(
    ("error", "kind"), [(ModelError("m"), UsageError), (DataError("d"), UsageError), (BuildError("b"), BuildError)]
)
def test_a_model_or_data_that_cannot_be_used_is_a_wrong_argument(error: QbenchError, kind: type[QbenchError]) -> None:
    """With its own words; what fails later is no usage error."""

    @takes()
    def command() -> None:
        raise error

    with pytest.raises(kind, match=f"^{error}$"):
        command()
