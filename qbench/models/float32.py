"""float32 arithmetic is computed in float32, whatever a user's file set for its own use.

``torch.set_float32_matmul_precision("medium")`` and ``torch.backends.mkldnn.*.fp32_precision = "bf16"`` let oneDNN
multiply float32 in bfloat16 where the CPU has instructions for it (AVX512-BF16, AMX): a Linear of 256 is then off by
6e-3 in place of 2e-6. Both are of the process, so that the network that is checked and quantized would differ from the
fp32 that is measured.
"""

from __future__ import annotations

from typing import Any

FULL = ("none", "ieee")  # none: nothing was asked for, which is float32


def keep_float32(name: str) -> str | None:
    """Sets torch back to float32 products and convolutions; a note of the network ``name`` where less was set."""
    import torch

    backends: Any = torch.backends
    owners = {
        "torch.backends": backends,
        **{
            f"torch.backends.mkldnn{part and '.'}{part}": getattr(backends.mkldnn, part) if part else backends.mkldnn
            for part in ("", "matmul", "conv", "rnn")
        },
    }
    lower = {where: part.fp32_precision for where, part in owners.items() if part.fp32_precision not in FULL}
    if not lower:
        return None
    for where in lower:
        owners[where].fp32_precision = "none"  # with "ieee" torch.export ends in an error about cuDNN's older setting
    torch.set_float32_matmul_precision("highest")
    settings = ", ".join(f"{where}.fp32_precision is {precision}" for where, precision in lower.items())
    return f"{name}: its file lets float32 be computed with fewer bits ({settings}); qbench computes it in float32"
