"""Networks whose int8 is slow or wrong for a known cause: is it named first, and does the pasted mend do what was said?

    python tests/benchmarks/explain_checks.py FOLDER [--only GLOB] [--photos FOLDER] [--seconds 3]

Of each network: its suite is run, its case explained, what `qbench explain` says to write into the suite is put there
(what to set for the process, set), and the suite is run again. A line each: the cause that was named first; what was
promised (the share of the output error that is gone, or how many times as fast for one example), and what the second
run has, with limits where both runs have the same fp32. What is done is read from FOLDER.
Needs the extras `zoo` and `openvino`; ``--photos``: an image folder for EfficientNet-Lite0 in place of twenty photos.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import logging
import math
import os
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from qbench.explain.trial import compare_errors, square_errors
from qbench.record.locate import find_run
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun, read_run

HERE = Path(__file__).resolve().parent
SUITES = HERE.parents[1] / "suites"
LITE0 = "size: 224, resize: 256, scale: 1/128, mean: 0.9921875, std: 1.0"
OWN = """
models: [{{name: net, source: {{python: "explain_networks.py:{network}"}}}}]
data:
  dataset: {{python: "explain_networks.py:{data}"}}
  calibrate: {{split: train, samples: {samples}}}
  evaluate: {{split: test}}
matrix: {{modes: [fp32, {mode}], backends: [{backend}]}}
quantize: {{{mode}: {{{recipe}}}}}
measure: {{spend: all, max_seconds: {seconds}}}
{more}
"""
MAGIKA = """
models: [magika]
data:
  dataset: {{python: "magika_files.py:load"}}
  calibrate: {{split: train, samples: 256}}
  evaluate: {{split: test}}
matrix: {{modes: [fp32, dynamic], backends: [onnxruntime]}}
measure: {{spend: all, max_seconds: {seconds}}}
"""
LITE = """
models: [efficientnet-lite0]
data:
  dataset: {{{photos}, {lite0}}}
  calibrate: {{split: train, samples: 100}}
  evaluate: {{split: test}}
matrix: {{modes: [fp32, static], backends: [fbgemm]}}
recipe: [framework-default]
measure: {{spend: all, max_seconds: {seconds}}}
limits: {{stage_seconds: 1800}}
"""
DIGITS = """
models: [digits-cnn]
data: {{dataset: digits, calibrate: {{split: train, samples: 256}}, evaluate: {{split: test}}}}
matrix: {{modes: [fp32, dynamic], backends: [onnxruntime]}}
measure: {{spend: all, max_seconds: {seconds}}}
"""
FILE = """
models: [{{name: net, source: {{onnx: net.onnx}}, int8: net-int8.onnx}}]
data:
  dataset: {{python: "explain_networks.py:images"}}
  calibrate: {{split: train, samples: 16}}
  evaluate: {{split: test}}
matrix: {{modes: [fp32, static], backends: [onnxruntime]}}
measure: {{spend: all, max_seconds: {seconds}}}
gate: {{accuracy: {{metric: sqnr, at_least: 20}}}}
"""
IMAGES = "gate: {accuracy: {metric: sqnr, at_least: 20}}"


NOT_COVERED = "not-covered"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A suite, its case, and the causes of which one is at work first; ``of``: time or accuracy."""

    name: str
    of: str
    causes: tuple[str, ...]
    case: str
    suite: str = OWN
    network: str = ""
    data: str = "digits"
    mode: str = "static"
    backend: str = "onnxruntime"
    recipe: str = ""
    samples: int = 128
    more: str = ""

    def write(self, folder: Path, options: argparse.Namespace) -> None:
        """The suite and what it names."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in (HERE / "explain_networks.py", HERE / "fitted_layer.py", SUITES / "magika_files.py"):
            shutil.copy(file, folder)
        if self.suite is FILE:
            write_own_file(folder)
        photos = f"image-folder: {options.photos}, classes: 1000" if options.photos else "imagenet: null"
        names = ("network", "data", "mode", "backend", "recipe", "samples", "more")
        values = {name: getattr(self, name) for name in names}
        text = self.suite.format(seconds=options.seconds, photos=photos, lite0=LITE0, **values)
        (folder / "before.yaml").write_text(f"suite: before\n{text}", encoding="utf-8")


def own(name: str, of: str, causes: str, network: str, backend: str, recipe: str, **more: Any) -> Check:
    """A check on a network of this folder."""
    return Check(
        name=name, of=of, causes=tuple(causes.split()), case=f"net/static/{backend}/t1/b1",
        network=network, backend=backend, recipe=recipe, **more
    )  # fmt: skip


CHECKS = (
    Check(
        name="magika", of="time", causes=("dynamic-activations", "slower-in-int8"),
        case="magika/dynamic/onnxruntime/t1/b1", suite=MAGIKA,
    ),
    Check(
        name="lite0-time", of="time", causes=("framework-default", "engine-kernels"),
        case="efficientnet-lite0/static@framework-default/fbgemm/t1/b1", suite=LITE,
    ),
    Check(
        name="lite0-accuracy", of="accuracy", causes=("framework-default",),
        case="efficientnet-lite0/static@framework-default/fbgemm/t1/b1", suite=LITE,
    ),
    Check(
        name="digits-dynamic", of="time", causes=("dynamic-activations",),
        case="digits-cnn/dynamic/onnxruntime/t1/b1", suite=DIGITS,
    ),
    Check(
        name="srcnn-file", of="time", causes=("kept-float", "own-file"), case="net/static@file/onnxruntime/t1/b1",
        suite=FILE,
    ),
    own(
        "srcnn-ort", "time", "kept-float", "srcnn", "onnxruntime", "skip_layers: ['4'], first_layer_float: false",
        data="images", samples=16, more=IMAGES,
    ),
    own("srcnn-openvino", "time", "kept-float", "srcnn", "openvino", "last_layer_float: true",
        data="images", samples=16, more=IMAGES),
    own("einsum-ort", "time", "not-covered", "attention", "onnxruntime", "", data="tokens", samples=16, more=IMAGES),
    own("einsum-openvino", "time", "not-covered", "attention", "openvino", "", data="tokens", samples=16, more=IMAGES),
    own("clipped-ort", "accuracy", "calibrator", "plain", "onnxruntime", "calibrator: percentile, percentile: 90"),
    own("clipped-onednn", "accuracy", "calibrator", "plain", "onednn", "calibrator: percentile, percentile: 90"),
    own("outlier-ort", "accuracy", "per-tensor", "outlier", "onnxruntime", "per_channel: false"),
    own("outlier-onednn", "accuracy", "per-tensor", "outlier", "onednn", "per_channel: false"),
    own("drift-ort", "accuracy", "calibration-data", "plain", "onnxruntime", "", data="dark"),
    own("drift-openvino", "accuracy", "calibration-data", "plain", "openvino", "", data="dark"),
    own("gates-fbgemm", "accuracy", "fixed-range", "gates", "fbgemm", ""),
    own("gates-onednn", "accuracy", "fixed-range", "gates", "onednn", ""),
    own("levels-onednn", "accuracy", "few-levels", "plain", "onednn", "symmetric: true, reduce_range: true"),
    replace(
        own("sums-avx2", "accuracy", "overflowing-sums", "loud", "onednn", "target: native, last_layer_float: true",
            more="hosts: [native, avx2]"),
        case="net/static/onednn/t1/b1/avx2",
    ),
    own("sums-fbgemm", "accuracy", "overflowing-sums", "depthwise", "fbgemm",
        "narrow_weights: false, reduce_range: false"),
)  # fmt: skip


def write_own_file(folder: Path) -> None:
    """An SRCNN as net.onnx, and what ONNX Runtime's own tool makes of it with the last convolution left out."""
    import explain_networks
    import torch
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    if (folder / "net-int8.onnx").is_file():
        return

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows = iter(explain_networks.images("train")["inputs"])

        def get_next(self) -> dict[str, Any] | None:
            row = next(self.rows, None)
            return None if row is None else {"x": row[None]}

    example = torch.zeros(1, 1, 48, 48)
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings(action="ignore"):
        torch.onnx.export(explain_networks.srcnn(), (example,), str(folder / "net.onnx"), dynamo=False, **names)
        import onnx

        last = [node.name for node in onnx.load(folder / "net.onnx").graph.node if node.op_type == "Conv"][-1]
        quantize_static(
            folder / "net.onnx", folder / "net-int8.onnx", Reader(), nodes_to_exclude=[last],
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True,
        )  # fmt: skip


def paste(keys: Any, into: Any) -> Any:
    """A suite with keys put in, as a person pastes them."""
    if not isinstance(keys, dict) or not isinstance(into, dict):
        return keys
    return {**into, **{key: paste(value, into.get(key)) for key, value in keys.items()}}


def list_keys(half: dict[str, Any]) -> Any:
    """What half of an explanation says to write into the suite, with its option."""
    keys = [yaml.safe_load(half.get(name) or "{}") or {} for name in ("suite", "option")]
    return paste(keys[1], keys[0])


def list_settings(half: dict[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What half of an explanation says of the process: variables, and the command that it begins with."""
    lines = half.get("option_environment") or half.get("environment") or []
    variables = dict(line.split()[1].partition("=")[::2] for line in lines if line.startswith(("export ", "unset ")))
    pinned = any(line.startswith("pin the process to one core") for line in lines)
    return variables, ("taskset", "-c", str(max(os.sched_getaffinity(0)))) if pinned else ()


def qbench(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, begin: tuple[str, ...] = ()
) -> str:
    """What a qbench command prints; its messages go to a file."""
    variables = {**os.environ, **(environment or {})}
    with (folder / "messages.txt").open("a", encoding="utf-8") as messages:
        command = [*begin, sys.executable, "-m", "qbench", *arguments, "--quiet"]
        finished = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=messages, text=True, env=variables, check=False
        )
    if finished.returncode not in ((0, 1) if arguments[0] == "run" else (0,)):
        raise SystemExit(f"{folder}: qbench {' '.join(arguments)}: {(folder / 'messages.txt').read_text()[-2000:]}")
    return finished.stdout


def check(item: Check, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The explanation of a case, and the second run's seconds and error beside the first's."""
    here = folder / item.name
    answer = here / "answer.json"
    if answer.is_file():
        known: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return known
    item.write(here, options)
    qbench(here, "run", "before.yaml")
    begin = time.monotonic()
    text = qbench(here, "explain", "before", item.case, "--of", item.of, "--json")
    seconds = time.monotonic() - begin
    explained = json.loads(text)
    half = explained[item.of]
    result: dict[str, Any] = {"explained": half, "seconds": seconds, "after": None}
    if half["suite"] or half.get("option") or half.get("option_environment"):  # which the promised gain holds
        variables, command = list_settings(half)
        suite = paste(list_keys(half), yaml.safe_load((here / "before.yaml").read_text()))
        (here / "after.yaml").write_text(yaml.safe_dump({**suite, "suite": "after"}, sort_keys=False))
        qbench(here, "run", "after.yaml", environment=variables, begin=command)
        os.chdir(here)
        before, after = read_run(find_run("before")), read_run(find_run("after"))
        result["after"] = compare(before, after, item.case, half)
    answer.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def compare(before: StoredRun, after: StoredRun, case: str, half: dict[str, Any]) -> dict[str, Any]:
    """The mended case of the second run beside the case of the first."""
    keys = list_keys(half)
    old = before.by_id[case]
    new = find_mended(after, old, keys)
    if new is None or new.status != "ok":
        return {"problem": "no such case" if new is None else f"{new.status}: {new.reason}"}
    outputs = {}
    for run, record in ((before, old), (after, new)):
        fp32 = run.by_id[record.speedup.baseline if record.speedup is not None else ""]
        outputs[run.folder] = [run.predictions(each)["outputs"] for each in (record, fp32)]
    errors = [square_errors(*pair) for pair in outputs.values()]
    removed = compare_errors(*errors)
    value, low, high = divide_times(old, new)
    delta = new.accuracy.delta if new.accuracy is not None else None
    return {
        "case": new.case.id,
        "faster": [value, low, high],
        "removed": None if removed is None else removed.share,
        "against_fp32": None if delta is None else [delta.value, delta.low, delta.high],
    }


def find_mended(after: StoredRun, old: Record, keys: dict[str, Any]) -> Record | None:
    """The record of the mended case: what the keys change, of the first one's key."""
    matrix = keys.get("matrix", {})
    names = {"mode": "modes", "backend": "backends", "threads": "threads", "batch_size": "batch_sizes"}
    parts = {name: matrix.get(key, [getattr(old.case, name)])[0] for name, key in names.items()}
    recipe = keys.get("recipe", [old.case.recipe])[0]
    parts |= {"recipe": recipe["name"] if isinstance(recipe, dict) else recipe, "host": old.case.host}
    for record in after.records:
        if all(getattr(record.case, name) == value for name, value in parts.items()):
            return record
    return None


def divide_times(old: Record, new: Record) -> tuple[float, float | None, float | None]:
    """How many times as fast one example is: by the speed-ups where both have the same fp32, with 95 % limits; else by
    the medians, without."""
    first, second = old.speedup, new.speedup
    assert first is not None
    assert second is not None
    if old.case.batch_size == new.case.batch_size and first.baseline == second.baseline:
        assert first.value is not None
        assert second.value is not None
        ratio = second.value / first.value
        if first.low and second.low and first.high and second.high:
            half = math.hypot(math.log(first.high / first.low), math.log(second.high / second.low)) / 2
            return ratio, ratio * math.exp(-half), ratio * math.exp(half)
        return ratio, None, None
    seconds = [
        (record.latency.p50_seconds or record.latency.mean_seconds or math.nan) / record.case.batch_size
        for record in (old, new)
        if record.latency is not None
    ]
    return seconds[0] / seconds[1], None, None


def shown(values: Any, scale: float = 1.0) -> str:
    """A value with its limits."""
    if values is None:
        return "-"
    if isinstance(values, dict):
        values = [values["value"], values["low"], values["high"]]
    value, low, high = values
    limits = "" if low is None or high is None else f" [{scale * low:.3g}, {scale * high:.3g}]"
    return f"{scale * value:.3g}{limits}"


def report(item: Check, result: dict[str, Any]) -> bool:
    """Prints a line; whether the right cause is first."""
    half, after = result["explained"], result["after"] or {}
    first = half["causes"][0] if half["causes"] else None
    right = first is not None and first["cause"] in item.causes
    uncovered = half.get("not_covered")
    if item.causes == (NOT_COVERED,):  # which nothing takes away
        right = uncovered is not None and first is None
    if item.of == "time":
        promised = half["together"] or (first["gain"] if first else None)
        said, measured = f"{shown(promised)} x", f"{shown(after.get('faster'))} x"
    else:
        together = half["together"]
        said = f"{shown(together['removed'] if together else None, 100)} % of the error gone"
        removed = after.get("removed")
        measured = "-" if removed is None else f"{100 * removed:.3g} %"
    layers = [] if uncovered is None else [name for name, _ in uncovered["layers"]]
    if uncovered is not None:
        said = f"{', '.join(layers)} have no int8 form: {100 * (uncovered['time_share'] or math.nan):.0f} % of the call"
    names = ", ".join(f"{cause['cause']} ({cause['change']})" for cause in half["causes"]) or "none"
    line = f"{'ok' if right else 'NO':3} {item.name:15} said {said}; measured {measured} {after.get('problem', '')}"
    print(f"{line}; {result['seconds']:.0f} s; causes: {names}", flush=True)
    return right


def main() -> None:
    """Runs the checks and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    folder = options.folder.resolve()
    chosen = [item for item in CHECKS if any(fnmatch.fnmatch(item.name, glob) for glob in options.only.split(","))]
    right = [report(item, check(item, folder, options)) for item in chosen]
    print(f"the cause that is at work is named first in {sum(right)} of {len(right)}")


if __name__ == "__main__":
    main()
