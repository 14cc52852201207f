"""What accuracy-based calibration knows so far: the scores and similarities that took time, in a JSON file.

Schema 1: identity, baseline, ranking (layer, similarity; the most sensitive first), trials (float, score; in order).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.quant.onnx.formats import config as config_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.formats import text_file
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import Config
from qbench.quant.onnx.sites import Record

SCHEMA = 1


@dataclass(kw_only=True)
class Ledger:
    """What is known so far, in a JSON file that is written whole each time. ``scores``: by the layers in float."""

    file: Path
    identity: str
    baseline: float | None = None
    similarity: dict[str, float] = field(default_factory=dict)
    scores: dict[tuple[str, ...], float] = field(default_factory=dict)

    @classmethod
    def open(cls, file: Path, identity: str) -> Ledger:
        """An empty one where the file is not there yet."""
        if not file.exists():
            return cls(file=file, identity=identity)
        try:
            content = json.loads(regular_file.read_text(file))
            scores = {tuple(trial["float"]): float(trial["score"]) for trial in content["trials"]}
            ledger = cls(file=file, identity=content["identity"], baseline=content["baseline"], scores=scores)
            ledger.similarity = {ranked["layer"]: float(ranked["similarity"]) for ranked in content["ranking"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file}: not a ledger of accuracy-based calibration ({error}); delete it") from error
        if content.get("schema") != SCHEMA or ledger.identity != identity:
            raise UsageError(
                f"{file}: the ledger of another model, configuration or record; delete it, or take another folder"
            )
        return ledger

    def write(self) -> None:
        """The ranking with the most sensitive layer first."""
        ranking = sorted(self.similarity.items(), key=lambda pair: pair[1])
        content = {
            "schema": SCHEMA,
            "identity": self.identity,
            "baseline": self.baseline,
            "ranking": [{"layer": name, "similarity": value} for name, value in ranking],
            "trials": [{"float": list(floats), "score": score} for floats, score in self.scores.items()],
        }
        text_file.write(json.dumps(content, indent=2) + "\n", self.file)


def identity(graph: Graph, config: Config, record: Record, build: Callable[..., Graph]) -> str:
    """Of everything that decides about a score, but the evaluator and its data."""
    digest = hashlib.sha256()
    for node in graph.nodes:
        digest.update(node.SerializeToString(deterministic=True))
    for name in sorted(graph.constants):
        if (value := graph.constant(name)) is not None:
            digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
    for text in (config_file.dumps(config), record_file.dumps(record), f"{build.__module__}.{build.__qualname__}"):
        digest.update(text.encode())
    return digest.hexdigest()
