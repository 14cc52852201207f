"""Programs of ``torch.export.save`` (.pt2): told apart from AOTInductor packages by what lies in the archive.

They are read, never loaded: nothing in them is unpickled. No runtime runs such a program as it is; its graph says what
would be int8 once it is compiled.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from qbench.check.finding import Finding

_GRAPH, _CODE = "/models/model.json", (".so", ".cpp", ".o")
_MOST_BYTES = 256 * 2**20  # of a graph as JSON
_QUANTIZE = ("quantized_decomposed", "torchao", "quantized.")


def explain_exported(file: Path) -> Finding | None:
    """What there is to say of a program of torch.export; None for any other file."""
    try:
        targets = _read_targets(file)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, RecursionError):
        return None  # the runtime says what it is
    if targets is None:
        return None
    count = sum(any(word in target for word in _QUANTIZE) for target in targets)
    quantized = "nothing in it is quantized"
    if count:
        quantized = f"{count} of its {len(targets)} operators quantize or dequantize"
    return Finding(
        severity="fault",
        code="not-compiled",
        text=f"it is a program of torch.export ({quantized}), which no runtime "
        "runs as it is: torch computes it in float",
        advice="compile it (torch._inductor.aoti_compile_and_package) or lower it (ExecuTorch), and check the .pt2 or "
        ".pte that comes out; a suite with backends inductor and executorch does both from the Python source",
    )


def _read_targets(file: Path) -> list[str] | None:
    """The operators of its graph; None for an archive with machine code, or without a graph."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry.file_size for entry in archive.infolist()}
        graph = next((name for name in entries if name.endswith(_GRAPH)), None)
        if graph is None or entries[graph] > _MOST_BYTES or any(name.endswith(_CODE) for name in entries):
            return None
        program = json.loads(archive.read(graph))
    return [str(node["target"]) for node in program["graph_module"]["graph"]["nodes"]]
