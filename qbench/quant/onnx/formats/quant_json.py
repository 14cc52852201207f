"""<prefix>.quant.json: what is quantized in the models beside it, with which scales, and what runs in float and why.

{"version": 1, "files": {"onnxruntime": {"name": …, "bytes": …, "sha256": …}},
 "layers": [{"name", "operator", "input", "scale_d", "offset_d", "weight", "axis", "scale_w": [min, max, count]}],
 "tensors": [{"node", "index", "input", "scale_d", "offset_d"}], "float": {layer: reason},
 "form": "U8S8" (types of activations and weights for ONNX Runtime), "parity": {target: …}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qbench.errors import UsageError
from qbench.quant.onnx.formats import text_file
from qbench.quant.onnx.graph.graph import Graph, weights_beside
from qbench.quant.onnx.sites import Record, Scales, Sites

VERSION = 1
ENDING = ".quant.json"


def write(
    file: Path,
    *,
    graph: Graph,
    sites: Sites,
    record: Record,
    files: Mapping[str, Path],
    parity: Mapping[str, Any],
    form: str | None = None,
) -> None:
    """Writes the document whole or not at all; ``files`` must be there already, in the same folder. ``record``: the
    scales that the models were made with, ``form``: of the model for ONNX Runtime, where there is one."""
    content = {
        "version": VERSION,
        "files": {what: _file(path) for what, path in files.items()},
        "layers": list(_layers(graph, sites, record)),
        "tensors": list(_tensors(sites, record)),
        "float": dict(sites.floats),
        "form": form,
        "parity": dict(parity),
    }
    text_file.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", file)


def read(file: Path) -> dict[str, Any]:
    """The document. Raises ``UsageError`` for a file that is none, or whose models were changed since."""
    text = text_file.read(file, ".quant.json file", "no such file; qbench onnx save writes it")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file}: not a .quant.json file ({error})") from error
    if not isinstance(content, dict) or content.get("version") != VERSION or not isinstance(content.get("files"), dict):
        raise UsageError(f"{file}: not a .quant.json file of version {VERSION}; save the models again")
    for what, entry in content["files"].items():
        model = file.with_name(str(entry.get("name")))
        if not model.is_file():
            raise UsageError(f"{file}: {what}: {model.name} is not beside it; save the models again")
        if _file(model) != entry:
            raise UsageError(f"{file}: {what}: {model.name} is not the file that was saved with it; save again")
    return content


def _layers(graph: Graph, sites: Sites, record: Record) -> Iterator[dict[str, Any]]:
    """Weights and inputs by layer, in the order of the graph."""
    weights = {site.layer: site for site in sites.weights}
    inputs = {key: site.tensor for site in sites.activations for key in site.keys}
    for node in graph.nodes:
        if node.name in sites.floats or (node.name not in weights and node.name not in inputs):
            continue
        scales, site = record.get(node.name, Scales()), weights.get(node.name)
        entry = {"name": node.name, "operator": node.op_type, "input": inputs.get(node.name)}
        entry |= {"scale_d": scales.scale_d, "offset_d": scales.offset_d}
        if site is not None:
            entry |= {"weight": site.tensor, "axis": site.axis, "scale_w": _range(scales.scale_w)}
        yield entry


def _tensors(sites: Sites, record: Record) -> Iterator[dict[str, Any]]:
    for site in sites.activations:
        for key, (node, index) in site.keys.items():
            if key != node or node in sites.floats:
                scales = record.get(key, Scales())
                entry = {"node": node, "index": index, "input": site.tensor}
                yield entry | {"scale_d": scales.scale_d, "offset_d": scales.offset_d}


def _range(scales: tuple[float, ...]) -> list[float | int] | None:
    """Least, greatest, how many."""
    return [min(scales), max(scales), len(scales)] if scales else None


def _file(path: Path) -> dict[str, Any]:
    """Name, size and content; weights that lie beside a model above 2 GB are part of it."""
    sha, size = hashlib.sha256(), 0
    for part in (path, *weights_beside(path)):
        size += part.stat().st_size
        with part.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                sha.update(chunk)
    return {"name": path.name, "bytes": size, "sha256": sha.hexdigest()}
