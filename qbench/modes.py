"""The modes: how a variant's numbers are made, and in which format it multiplies; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Mode = Literal["fp32", "bf16", "fp16", "weight_only", "dynamic", "static", "qat"]
Precision = Literal["fp32", "bf16", "fp16", "int8"]  # of the factors of a product
MODES: tuple[Mode, ...] = get_args(Mode)
# Floats of 16 bits: what fp32 becomes without a recipe, data or training, where the CPU multiplies them.
HALVES: tuple[Precision, ...] = ("bf16", "fp16")
FLOATS = ("fp32", *HALVES)
WEIGHT_ONLY = "weight_only"  # weights in 8 or 4 bits, activations floats in the file
# What a suite without `matrix.modes` asks for: 16-bit floats run on few CPUs, and are asked for by name.
ASKED: tuple[Mode, ...] = ("fp32", "dynamic", "static", "qat")


def precision_of(mode: str) -> Precision:
    """The format in which a variant of that mode is meant to multiply; fp32 for weights of few bits, which an engine
    may multiply with bytes that it makes of activations."""
    return mode if mode in FLOATS else "fp32" if mode == WEIGHT_ONLY else "int8"


def float_of(mode: str) -> Precision:
    """The format in which a variant of that mode multiplies its floats."""
    return mode if mode in HALVES else "fp32"


def is_int8(mode: str) -> bool:
    """Whether a mode makes integers of weights and activations."""
    return precision_of(mode) == "int8"


def name_formats(modes: Iterable[str]) -> str:
    """``int8``, ``bf16``, ``int8 or bf16``: what variants of these modes are beside fp32; int8 where there are none."""
    formats = {"weight-only" if mode == WEIGHT_ONLY else precision_of(mode) for mode in modes} - {"fp32"}
    return " or ".join(name for name in ("int8", *HALVES, "weight-only") if name in formats) or "int8"


def needs_training(mode: str) -> bool:
    """Whether a variant of that mode is trained."""
    return mode == "qat"


def needs_calibration(mode: str) -> bool:
    """Whether a variant of that mode has to see data before it can run."""
    return mode in ("static", "qat")
