"""Variants as a reader who does not know qbench calls them: ``static int8 on ONNX Runtime``; pure."""

from __future__ import annotations

from collections.abc import Iterable

from qbench.modes import is_int8, name_formats
from qbench.record.schema import CaseKey, Record

BACKENDS = {
    "torch": "PyTorch",
    "fbgemm": "FBGEMM (PyTorch)",
    "x86": "x86 (PyTorch)",
    "onednn": "oneDNN (PyTorch)",
    "qnnpack": "QNNPACK (PyTorch)",
    "inductor": "Inductor (PyTorch)",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "executorch": "ExecuTorch (XNNPACK)",
}


def backend_name(backend: str) -> str:
    """The name that the backend's makers use; a plug-in's own name."""
    return BACKENDS.get(backend, backend)


def variant_name(record: Record) -> str:
    """``static int8 on ONNX Runtime``, ``fp32 on PyTorch``, ``static int8 (recipe eager) on oneDNN (PyTorch)``."""
    return name_variant(record.case.mode, record.case.recipe, record.case.backend)


def name_variant(mode: str, recipe: str, backend: str) -> str:
    """The same from its parts."""
    kind = "QAT int8" if mode == "qat" else f"{mode} int8" if is_int8(mode) else mode.replace("_", "-")
    of_recipe = "" if recipe == "default" else f" (recipe {recipe})"
    return f"{kind}{of_recipe} on {backend_name(backend)}"


def name_formats_of(records: Iterable[Record]) -> str:
    """``int8``, ``int8 or bf16``: what the cases other than fp32 multiply in."""
    return name_formats(record.case.mode for record in records)


def in_words(text: str, keys: Iterable[CaseKey]) -> str:
    """The text with each variant's short name, ``static · onnxruntime``, in words; the longest names first, so that no
    name is taken for the beginning of another."""
    names = {}
    for key in keys:
        names[key.variant] = name_variant(key.mode, key.recipe, key.backend)
        if key.mode == "fp32" and not key.is_twin:
            names[f"fp32 on {key.backend}"] = names[key.variant]
    for short in sorted(names, key=len, reverse=True):
        text = text.replace(short, names[short])
    return text
