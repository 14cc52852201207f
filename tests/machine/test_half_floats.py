"""Which CPUs multiply floats of 16 bits, and what a switch of oneDNN's leaves of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench.machine.half_floats import explain_missing


def write_cpu(root: Path, *words: str) -> Path:
    """A root folder whose /proc/cpuinfo has two cores with these words."""
    (root / "proc").mkdir()
    core = f"processor: 0\nflags: avx2 avx512f {' '.join(words)}\n\n"
    (root / "proc" / "cpuinfo").write_text(core * 2)
    return root


@pytest.mark.parametrize(
    ("word", "precision"),
    [("avx512_bf16", "bf16"), ("amx_bf16", "bf16"), ("avx512_fp16", "fp16"), ("amx_fp16", "fp16")],
)
def test_a_cpu_with_the_instructions_multiplies_the_format(tmp_path: Path, word: str, precision: str) -> None:
    """Each of them is enough, and none serves the other format."""
    root = write_cpu(tmp_path, word)
    other = "fp16" if precision == "bf16" else "bf16"
    assert explain_missing(precision, root, {}) is None  # type: ignore[arg-type]
    assert f"no instructions that multiply {other}" in (explain_missing(other, root, {}) or "")  # type: ignore[arg-type]


def test_a_cpu_without_them_is_told_what_it_lacks(tmp_path: Path) -> None:
    """VNNI is for bytes, and converting is no multiplying."""
    reason = explain_missing("bf16", write_cpu(tmp_path, "avx512_vnni", "avx_ne_convert"), {})
    assert reason == "this CPU has no instructions that multiply bf16 (avx512_bf16, amx_bf16, bf16)"


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
@pytest.mark.parametrize(
    ("limit", "bf16", "fp16"),
    [
        ("AVX2", False, False),
        ("avx512_core", False, False),
        ("AVX512_CORE_VNNI", False, False),
        ("AVX512_CORE_BF16", True, False),
        ("AVX512_CORE_FP16", True, True),
        ("AVX10_1_512", True, True),
        ("AVX512_CORE_AMX", True, True),
        ("", True, True),
    ],
)
def test_a_switch_of_onednns_hides_them(tmp_path: Path, name: str, limit: str, bf16: bool, fp16: bool) -> None:
    """oneDNN takes the limit in either case of letters, by either name; the reason says which variable it was."""
    root = write_cpu(tmp_path, "avx512_bf16", "avx512_fp16")
    for precision, kept in (("bf16", bf16), ("fp16", fp16)):
        reason = explain_missing(precision, root, {name: limit})  # type: ignore[arg-type]
        expected = f"{name}={limit} hides this CPU's instructions that multiply {precision} (avx512_{precision})"
        assert reason == (None if kept else expected)
