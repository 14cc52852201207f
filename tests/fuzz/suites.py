"""Mutated suites: reading, planning and wording of a plan end in a result or in problems with their place.

    python tests/fuzz/suites.py --seconds 3600 --seed 0

Bytes and lines of real suites are mutated, their trees, and suites made at random from the JSON Schema.
"""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

import mutate
import yaml
from harness import Files, Fuzzer, main

from qbench import suite as suites
from qbench.plan import text as plan_text
from qbench.plan.planner import make_plan, measuring_cores

ROOT = Path(__file__).parents[2]
FILE = "suite.yaml"
TOKENS = tuple(
    token.encode()
    for token in (
        *(
            "&a ",
            "*a",
            "<<: *a\n",
            "!!python/object:os.system ",
            "!x ",
            "? ",
            ": ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            ",",
            "|\n",
        ),
        *(">\n", "---\n", "...\n", "%YAML 9.9\n", "\t", "\n", "#", '"', "'", "\\", "\0", "\u202e", "\ufeff", "\x85"),
        *(".nan", ".inf", "1e999", "-0", "0x1F", "1_000", "9" * 400, "2%", "~", "null", "yes", "2026-01-01", "<<"),
        *("python: a.py:f", "npz: x.npz", "../..", "skip_layers: ['*']", "include: ", "backends: ", "recipe: "),
    )
)
OWN = """
suite: own
models:
  - name: mine
    source: {python: m.py:build, args: {width: 32}}
    weights: m.safetensors
  - {name: file, source: {onnx: m.onnx}}
  - digits-cnn
data:
  dataset: {python: m.py:load, args: {n: 3}, classes: 10, scale: 1/255, mean: [0.1], std: [0.2]}
  calibrate: {split: train, samples: 8, seed: 1, seeds: 2}
  evaluate: {split: test, samples: 9, seed: 2}
matrix:
  modes: [fp32, static, qat, dynamic]
  backends: [torch, fbgemm, onnxruntime, fake]
  threads: [1, 2]
  batch_sizes: [1, 8]
  include: [{model: mine, mode: static, backend: fake, threads: 1, batch_size: 3}]
  exclude: [{model: digits-cnn, mode: qat}]
quantize: {static: {skip_layers: [fc], calibrator: minmax}, qat: {epochs: 1, learning_rate: 1e-3}}
recipe: [default, {name: other, symmetric: true}]
measure: {protocol: paired, precision: 2%, max_seconds: 30, processes: 3}
gate: {latency: {max_regression: 5%, min_speedup: 1.5}, accuracy: {metric: top1, margin: 1.0}, size: {max_ratio: 0.35}}
limits: {stage_seconds: 600}
"""


@cache
def corpus() -> tuple[bytes, ...]:
    """The suites of the repository, those of its tests, and one with every section."""
    files = [*sorted((ROOT / "suites").glob("*.yaml")), *sorted((ROOT / "tests/data").rglob("*.yaml"))]
    return (OWN.encode(), *(file.read_bytes() for file in files))


def make(random: random.Random) -> Files:
    """One suite, and the files that the corpus names beside it."""
    kind = random.randrange(4)
    text = random.choice(corpus())
    if kind == 0:
        text = mutate.changed_bytes(random, text, TOKENS)
    elif kind == 1:
        text = mutate.changed_lines(random, text)
    else:
        tree = yaml.safe_load(random.choice(corpus()[:3])) if kind == 2 else make_value(random, schema(), 0)
        tree = mutate.changed_tree(random, tree) if kind == 2 or random.random() < 0.5 else tree
        text = dumped(random, tree)
    return {FILE: text, "m.py": b"def build(width=1): ...\ndef load(split, n=1): ...\n", "m.onnx": b"", "x.npz": b""}


def dumped(random: random.Random, tree: Any) -> bytes:
    """The tree as YAML, in one of its forms."""
    try:
        if random.random() < 0.3:
            return json.dumps(tree).encode(errors="replace")
        return yaml.safe_dump(tree, default_flow_style=random.choice((None, False)), sort_keys=False).encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        return json.dumps(tree).encode(errors="replace")


@cache
def schema() -> Any:
    """What a suite is allowed to be."""
    return suites.json_schema()


def make_value(random: random.Random, part: Any, depth: int) -> Any:
    """A value that the part of the schema allows, roughly: names and paths are drawn from words that occur."""
    if "$ref" in part:
        return make_value(random, schema()["$defs"][part["$ref"].rpartition("/")[2]], depth)
    for key in ("anyOf", "oneOf"):
        if key in part and any("type" in option or "$ref" in option or "enum" in option for option in part[key]):
            return make_value(random, random.choice(part[key]), depth)
    if "enum" in part or "const" in part:
        return random.choice(part.get("enum", [part.get("const")]))
    kind = part.get("type")
    if kind == "object" or "properties" in part:
        needed, share = part.get("required", ()), 0.6 / (depth + 1)
        chosen = [name for name in part.get("properties", {}) if name in needed or random.random() < share]
        return {name: make_value(random, part["properties"][name], depth + 1) for name in chosen}
    if kind == "array":
        item = part.get("items", {})
        return [make_value(random, item, depth + 1) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if kind in ("integer", "number"):
        return random.choice((0, 1, 2, 8, 0.5, 0.02, 64, 1000))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "null":
        return None
    return random.choice(("digits-cnn", "digits", "train", "test", "m.py:build", "m.onnx", "x.npz", "default", "2%"))


def attempt(folder: Path) -> None:
    """Reads and plans the suite as ``qbench plan`` does, and asks for places as the gate does."""
    suite = suites.read(folder / FILE)
    cores = measuring_cores(suite, (0, 1))
    plan = make_plan(suite, cores=len(cores), only=None)
    plan_text.text(plan)
    plan_text.as_json(plan)
    suite.references()
    for key in ("gate.accuracy.margin", "matrix", "models[0].source.python", "nowhere"):
        suite.place(key)


FUZZER = Fuzzer(name="suites", make=make, attempt=attempt)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
