"""Runs on disk as tests of the report need them: with hostile texts, with predictions, with flipped images."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from made_records import CASE, FP32, accuracy, failed, fp32, info, int8, speedup

from qbench import record as records_file
from qbench.datasets.base import Preprocessing
from qbench.record import Record
from qbench.stored import RunInfo

HOSTILE = '<script>alert("x")</script></svg>\'"><img src=http://evil.example/x onerror=1>$x^2$|`\x00\x1b\u202e日本'


def run_folder(path: Path, records: list[Record], described: RunInfo | None = None) -> Path:
    """A run on disk."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(asdict(described or info())), encoding="utf-8")
    records_file.write(path / "records.jsonl", records)
    return path


class Page(HTMLParser):
    """What a page holds, by a plain parser."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes every element."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Notes every text."""
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]


def hostile_run(path: Path) -> Path:
    """A run whose every free text tries to break out."""
    case = f"{HOSTILE}/static/onednn/t1/b1"
    base = f"{HOSTILE}/fp32/torch/t1/b1"
    good = int8(case, speedup=speedup(baseline=base), recipe={"flow": HOSTILE}, observed={HOSTILE: HOSTILE})
    described = info(environment={HOSTILE: HOSTILE}, versions={HOSTILE: HOSTILE})
    described = replace(described, suite=replace(described.suite, name=HOSTILE, file=HOSTILE, text=HOSTILE))
    return run_folder(path, [fp32(base), good, failed(f"{HOSTILE}/qat/x86/t1/b1", reason=HOSTILE)], described)


def predictions(
    classes: list[int], labels: list[int] | None, leads: list[float] | None = None
) -> dict[str, np.ndarray]:
    """Outputs of ten classes that answer ``classes``, each ahead of the rest by its lead."""
    outputs = np.zeros((len(classes), 10), dtype=np.float32)
    outputs[np.arange(len(classes)), classes] = leads or [1.0] * len(classes)
    named = {"ids": np.array([f"photo/{i}" for i in range(len(classes))])}
    return {"outputs": outputs, **named} | ({} if labels is None else {"labels": np.array(labels)})


def write_with_predictions(folder: Path, record: Record, stored: dict[str, np.ndarray]) -> Record:
    """The record with its predictions in the folder."""
    name = f"predictions/{record.case.id.replace('/', '__')}.npz"
    (folder / "predictions").mkdir(exist_ok=True)
    np.savez(folder / name, **stored)
    return replace(record, predictions=name)


@dataclass
class Raw:
    """Stands for the data of a run: one or more inputs in memory."""

    arrays: tuple[np.ndarray, ...]
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @property
    def inputs(self) -> int:
        """How many inputs the model takes."""
        return len(self.arrays)

    def _raw(self, part: str) -> tuple[np.ndarray, ...]:
        assert part == "evaluate"
        return self.arrays


def flipped_run(folder: Path, count: int = 40, classes: int = 10) -> tuple[Path, Any]:
    """A run in which the first ``count`` of 200 examples flip, half of them to right; and its pairs of predictions."""
    labels = [i % classes for i in range(200)]
    wrong = [(label + 1) % classes for label in labels]
    half = count // 2
    base = [wrong[i] if i < half else labels[i] for i in range(200)]
    own = [wrong[i] if half <= i < count else labels[i] for i in range(200)]
    run_folder(folder, [], info((FP32, CASE)))
    counts = accuracy(harmful=count - half, beneficial=half, n=200, right=200 - half)
    records = [
        write_with_predictions(folder, fp32(), predictions(base, labels)),
        write_with_predictions(folder, int8(accuracy=counts), predictions(own, labels)),
    ]
    records_file.write(folder / "records.jsonl", records)
    return folder, [(folder / str(records[1].predictions), folder / str(records[0].predictions))]


def quiet(text: str, share: float) -> None:
    """Progress that nobody hears."""
