"""What each mode is: its format, and what it needs before it runs."""

from __future__ import annotations

from qbench.modes import (
    ASKED,
    FLOATS,
    MODES,
    float_of,
    is_int8,
    name_formats,
    needs_calibration,
    needs_training,
    precision_of,
)


def test_every_mode_has_a_format() -> None:
    """A float is its own; dynamic, static and qat are int8, whose floats are fp32; weights alone multiply as fp32."""
    assert [precision_of(mode) for mode in MODES] == ["fp32", "bf16", "fp16", "fp32", "int8", "int8", "int8"]
    assert [float_of(mode) for mode in MODES] == ["fp32", "bf16", "fp16", "fp32", "fp32", "fp32", "fp32"]
    assert [mode for mode in MODES if not is_int8(mode)] == [*FLOATS, "weight_only"]
    assert name_formats(["fp32", "bf16", "qat", "static"]) == "int8 or bf16"
    assert (name_formats(["weight_only"]), name_formats(["fp32"]), name_formats([])) == ("weight-only", "int8", "int8")


def test_only_what_sees_data_needs_it() -> None:
    """qat alone trains; static and qat have ranges of activations, which data decide."""
    assert [mode for mode in MODES if needs_training(mode)] == ["qat"]
    assert [mode for mode in MODES if needs_calibration(mode)] == ["static", "qat"]


def test_16_bit_floats_are_asked_for_by_name() -> None:
    """A suite that names no modes has those that run on every CPU."""
    assert ASKED == ("fp32", "dynamic", "static", "qat")
