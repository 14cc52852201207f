"""Rules of qbench/decide/names.py: variants in words."""

from __future__ import annotations

from dataclasses import replace

from made_records import case_key, fp32, int8

from qbench import registry
from qbench.decide.names import BACKENDS, in_words, variant_name


def test_every_built_in_backend_has_a_name() -> None:
    """As its makers write it; a plug-in keeps its own."""
    assert set(registry.BUILT_IN["backend"]) - {"fake"} <= set(BACKENDS)
    assert variant_name(int8("net/static/mine/t1/b1")) == "static int8 on mine"


def test_short_names_in_a_sentence_become_words() -> None:
    """The longest first, so that a recipe's name is not cut; fp32 is named by its runtime."""
    named = replace(int8(), case=replace(case_key("net/static/x86/t1/b1"), recipe="a"))
    records = [fp32(), int8("net/qat/onnxruntime/t1/b1"), named]
    keys = [record.case for record in records]
    told = in_words("Either qat · onnxruntime or static@a · x86, not fp32 on torch.", keys)
    assert told == "Either QAT int8 on ONNX Runtime or static int8 (recipe a) on x86 (PyTorch), not fp32 on PyTorch."


def test_fp32_in_a_sentence_is_the_plain_one() -> None:
    """Not its twin of another training, nor what else its runtime has."""
    twin = replace(case_key("net/fp32/torch/t1/b1"), recipe="twin")
    keys = [fp32().case, twin, int8("net/static/torch/t1/b1").case]
    for order in (keys, keys[::-1]):
        assert in_words("Keep fp32 on torch.", order) == "Keep fp32 on PyTorch."


def test_a_name_is_not_taken_for_the_beginning_of_another() -> None:
    """Whatever comes first."""
    keys = [case_key(f"net/static/{backend}/t1/b1") for backend in ("x86", "x86-mine")]
    for order in (keys, keys[::-1]):
        assert in_words("static · x86-mine", order) == "static int8 on x86-mine"
