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
