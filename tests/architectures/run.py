"""Every mode and backend over the zoo, through qbench's own stages up to the evaluation (nothing is timed).

    python tests/architectures/run.py [--only 'vit,unet*'] [--modes static,qat] [--backends fbgemm,onnxruntime]
                                      [--by-hand] [--out FOLDER] [--jobs N] [--again] [--show]

Prints network x mode x backend, and fp32 of each runtime -> ok (SQNR against fp32, coverage), skipped with its reason,
FAILED with its reason, or SUSPICIOUS where it is far below the other backends of its network and mode; the exit code is
1 if anything failed or is suspicious. What is known is kept in the folder, one file per network, and only what is
missing or failed is run: a run that was stopped goes on, and several may share a folder. ``--by-hand`` builds each
variant as the backend's own tool does by itself, too, and as qbench does for this machine alone, and says by how many
dB that is better, in three times the time.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import zoo  # noqa: E402  # a module beside this one

MODES = ("static", "dynamic", "qat")
BACKENDS = ("fbgemm", "x86", "onednn", "qnnpack", "inductor", "onnxruntime", "openvino")
RUNTIMES = {"fbgemm": "torch", "x86": "torch", "onednn": "torch", "qnnpack": "torch"}
# Below this the outputs are no longer those of fp32, whatever the build said: quantization noise of these networks
# lies at 15 dB and more, a wrong kernel or scale at 5 and less.
LEAST_DECIBELS = 8.0
# A network of random weights may be chaos: noise of -40 dB at its inputs leaves less than this of its outputs in fp32,
# so that outputs far from fp32's tell nothing of an engine.
LEAST_LEFT, NOISE = 20.0, 0.01
# An outcome is held against the other backends of its mode that compute at least this share of its multiply-accumulates
# in int8: those that leave convolutions float (the torch engines in mode dynamic) are 12 dB better for that alone.
LIKE_COVERAGE = 0.75
# Behind the mode of a cell: the recipe of the backend's own tool, and qbench's for this machine alone, as that is.
BY_HAND, NATIVE = "@framework-default", "@for-native"
LESS = 1.0  # how many dB below that a variant may be
# How far below their median it may be, and below the other of the two that run files of one recipe. Kinds of ranges and
# of weights make up to 8.6 dB (spectral_norm_old: 31.5 on onnxruntime, 40.1 on openvino); faults that were found made
# 11.7 and 26.7 (cbam and crnn on openvino).
FARTHEST = 10.0
SAME_RECIPE = ("onnxruntime", "openvino")
SUITE = """
suite: zoo
models: [{{name: "{network}", {keys}}}]
data:
  dataset: {{python: "zoo.py:load", args: {{family: {family}, network: {network}}}}}
  calibrate: {{split: train, samples: 32}}
  evaluate: {{split: test, samples: 16}}
matrix: {{modes: [{modes}], backends: [{backends}]}}
recipe: [default, framework-default, {{target: native}}]
quantize:
  static: {{min_coverage: 0.1%}}
  qat: {{min_coverage: 0.1%, epochs: 1, batch_size: 16, samples: 32, learning_rate: 1e-4}}
gate: {{accuracy: {{metric: sqnr, margin: 30}}}}
limits: {{stage_seconds: 900}}
"""


class Quiet:
    """A progress that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, name: str, total: int | None) -> None:
        pass

    def advance(self, text: str, share: float | None = None) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def expect(self, seconds: dict[str, float]) -> None:
        pass

    def reach(self, share: float) -> None:
        pass


def outcomes(network: str, cells: list[str], *, jobs: int) -> dict[str, dict]:
    """``mode/backend`` -> what came of it, for cells of one network."""
    from qbench import suite

    cells = [*cells, *dict.fromkeys(f"fp32/{RUNTIMES.get(each.split('/')[1], each.split('/')[1])}" for each in cells)]
    modes, backends = ({each.split("/")[place].partition("@")[0] for each in cells} for place in (0, 1))
    text = SUITE.format(
        network=network,
        family=zoo.family_of(network),
        keys=zoo.keys_of(network),
        modes=", ".join(sorted(modes)),
        backends=", ".join(backends),
    )
    with tempfile.TemporaryDirectory(prefix="qbench-zoo-") as folder:
        parsed = suite.parse(text, file=str(HERE / "zoo.yaml"))
        return _run(parsed, Path(folder), only=",".join(f"{network}/{cell}/*" for cell in cells), jobs=jobs)


def _run(parsed, out: Path, *, only: str, jobs: int) -> dict[str, dict]:
    """The stages of ``qbench run`` up to the scores; a case that is still open then is ok."""
    from qbench.running.build_stage import build_variants
    from qbench.running.evaluate_stage import evaluate
    from qbench.running.prepare_stage import prepare
    from qbench.running.run import open_run

    context = open_run(parsed, out=out, only=only, resume=None, jobs=jobs, progress=Quiet())
    prepared = prepare(context, parsed)
    built = {} if prepared is None else build_variants(context, prepared)
    evaluated = {} if prepared is None else evaluate(context, prepared, built)
    return _list_outcomes(context, built, evaluated)


def _list_outcomes(context, built, evaluated) -> dict[str, dict]:
    outcomes = {}
    for record in context.directory.records():
        outcomes[_cell_of(record.case.id)] = {"status": record.status, "reason": record.reason}
    for planned in context.tracker.open_cases():
        case = planned.case
        facts = built[case.variant.id].artifact.facts()
        outcomes[_cell_of(case.id)] = _judged(
            decibels=evaluated[case.id].accuracy.value,
            coverage=None if facts.coverage is None else facts.coverage.macs_int8,
            note=facts.note,
        )
    return outcomes


def _cell_of(case: str) -> str:
    """``static/onnxruntime`` of ``net/static/onnxruntime/t1/b1``."""
    return "/".join(case.split("/")[1:3])


def _judged(*, decibels: float, coverage: float | None, note: str | None) -> dict:
    wrong = decibels < LEAST_DECIBELS
    return {
        "status": "failed" if wrong else "ok",
        "reason": f"its outputs are not fp32's: {decibels:.1f} dB" if wrong else None,
        "sqnr": decibels,
        "coverage": coverage,
        "note": note,
    }


def run_network(network: str, cells: list[str], *, file: Path, jobs: int, again: bool) -> None:
    """Runs what a network's file does not hold yet, and writes the file."""
    from filelock import FileLock

    with FileLock(file.with_suffix(".lock")):
        known = json.loads(file.read_text()) if file.exists() else {}
        missing = [cell for cell in cells if again or known.get(cell, {}).get("status", "failed") == "failed"]
        if not missing:
            return
        started = time.monotonic()
        try:
            fresh = outcomes(network, missing, jobs=jobs)
        except Exception as error:  # a bug of qbench's: a row of the table, and the zoo goes on
            fresh = {cell: {"status": "failed", "reason": f"{type(error).__name__}: {error}"} for cell in missing}
        for cell, outcome in fresh.items():
            outcome = _without_chaos(network, outcome)
            known[cell] = {**outcome, "seconds": round(time.monotonic() - started, 1)}
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(known, indent=1))
        temporary.replace(file)


def _without_chaos(network: str, outcome: dict) -> dict:
    """The outcome; skipped, with the reason, where fp32 itself tells nothing beside a little noise."""
    if outcome["status"] != "failed" or outcome.get("sqnr") is None:
        return outcome
    left = count_decibels_left(network)
    if left is None or left >= LEAST_LEFT:
        return outcome
    reason = f"{outcome['sqnr']:.1f} dB, and fp32 itself {left:.1f} dB with noise of -40 dB at its inputs: chaos"
    return {**outcome, "status": "skipped", "reason": reason}


@functools.cache
def count_decibels_left(network: str) -> float | None:
    """Of the output that is judged in fp32, with noise at the inputs; None for a file, or where an input holds whole
    numbers."""
    import torch

    from qbench.models.adapt import list_paths

    family = importlib.import_module(zoo.family_of(network))
    inputs = [torch.from_numpy(array) for array in zoo.load("test", family.__name__, network)[0]]
    if hasattr(family, "source_of") or not all(array.is_floating_point() for array in inputs):
        return None
    torch.manual_seed(0)
    module = zoo.build(family.__name__, network)
    with torch.no_grad():
        plain, noisy = (module(*(x + share * x.std() * torch.randn_like(x) for x in inputs)) for share in (0.0, NOISE))
    output = str(dict(*family.NETWORKS[network][2:]).get("output", "")).strip('"')
    plain, noisy = (dict(list_paths(result)).get(output) for result in (plain, noisy))
    if plain is None or noisy is None:
        return None
    return float(10 * torch.log10((plain**2).sum() / ((noisy - plain) ** 2).sum()))


def judged(known: dict[str, dict]) -> dict[str, dict]:
    """The outcomes of one network, with what is far below the others of its mode as suspicious; it is not stored, since
    the others may still come."""
    compared = {cell: outcome for cell, outcome in known.items() if outcome["status"] == "ok" and "@" not in cell}
    reasons = {cell: _far_below(cell, known) or _below_by_hand(cell, known) for cell in compared}
    return {
        cell: {**outcome, "status": "suspicious", "reason": reasons[cell]} if reasons.get(cell) else outcome
        for cell, outcome in known.items()
    }


def _far_below(cell: str, known: dict[str, dict]) -> str | None:
    """Why an outcome is suspicious."""
    mode, backend = cell.split("/")
    coverage, decibels = known[cell]["coverage"], known[cell]["sqnr"]
    others = {
        name.split("/")[1]: outcome["sqnr"]
        for name, outcome in known.items()
        if name != cell and name.startswith(f"{mode}/") and outcome["status"] == "ok"
        and (outcome["coverage"] or 0) >= LIKE_COVERAGE * (coverage or 0)
    }  # fmt: skip
    if not others:
        return None
    expected = [statistics.median(others.values())]
    if backend in SAME_RECIPE and mode == "static":  # in qat openvino leaves out ranges that were trained
        expected += [others[recipe] for recipe in SAME_RECIPE if recipe in others]
    if decibels >= max(expected) - FARTHEST:
        return None
    return f"{decibels:.1f} dB where others have {max(expected):.1f}"


def _by_hand(cell: str, known: dict[str, dict]) -> tuple[float, float] | None:
    """The decibels of qbench's variant for this machine alone and of what the backend's own tool makes of a network;
    None where one of them made nothing, or the tool much less int8."""
    mode, backend = cell.split("/")
    own, tool = (known.get(f"{mode}{how}/{backend}", {}) for how in (NATIVE, BY_HAND))
    if own.get("sqnr") is None or tool.get("sqnr") is None:
        return None
    less = (tool["coverage"] or 0) < LIKE_COVERAGE * (own["coverage"] or 0)
    return None if less else (own["sqnr"], tool["sqnr"])


def _below_by_hand(cell: str, known: dict[str, dict]) -> str | None:
    """Why an outcome is suspicious beside that of the backend's own tool."""
    both = _by_hand(cell, known)
    if both is None or both[0] >= both[1] - LESS:
        return None
    return f"{both[0]:.1f} dB for this machine alone, where its own tool has {both[1]:.1f}"


def shown(network: str, known: dict[str, dict], cells: list[str]) -> list[str]:
    """The rows of one network."""
    rows = []
    for cell in (cell for cell in cells if "@" not in cell):
        outcome = known.get(cell, {"status": "not run", "reason": None})
        words = {"ok": "ok", "skipped": f"skipped: {outcome['reason']}", "failed": f"FAILED: {outcome['reason']}",
                 "suspicious": f"SUSPICIOUS: {outcome['reason']}"}  # fmt: skip
        text = words.get(outcome["status"], outcome["status"])
        if outcome["status"] == "ok":
            coverage = outcome["coverage"]
            share = "" if coverage is None else f", {coverage:.0%} int8"
            both = _by_hand(cell, known)
            beside = "" if both is None else f"; for this machine alone {both[0] - both[1]:+.1f} dB over its own tool"
            text = f"ok ({outcome['sqnr']:.1f} dB{share}{beside})"
        rows.append(f"{network:18} {cell:20} {text}")
    return rows


def _chosen(given: str, every: tuple[str, ...] | list[str]) -> list[str]:
    chosen = [name for name in every if any(fnmatch.fnmatch(name, glob.strip()) for glob in given.split(","))]
    if not chosen:
        sys.exit(f"nothing matches '{given}'; there are {', '.join(every)}")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*", help="networks, as comma-separated globs")
    parser.add_argument("--modes", default="*")
    parser.add_argument("--backends", default="*")
    parser.add_argument("--by-hand", action="store_true", help="build as the backend's own tool does, too")
    parser.add_argument("--out", type=Path, default=Path("reports/zoo"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="run again what is known, too")
    parser.add_argument("--show", action="store_true", help="run nothing; show what is known")
    given = parser.parse_args(arguments)
    modes, backends = _chosen(given.modes, MODES), _chosen(given.backends, BACKENDS)
    cells = [
        f"{mode}{how}/{backend}"
        for mode in modes
        for backend in backends
        for how in (("", NATIVE, BY_HAND) if given.by_hand else ("",))
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    totals = dict.fromkeys(("ok", "skipped", "failed", "suspicious", "not run"), 0)
    for network in _chosen(given.only, zoo.names()):
        file = given.out / f"{network}.json"
        if not given.show:
            run_network(network, cells, file=file, jobs=given.jobs, again=given.again)
        known = judged(json.loads(file.read_text())) if file.exists() else {}
        listed = [*(cell for cell in known if cell.startswith("fp32/")), *cells]
        print("\n".join(shown(network, known, listed)), flush=True)
        for cell in (cell for cell in listed if "@" not in cell):
            totals[known.get(cell, {}).get("status", "not run")] += 1
    print(", ".join(f"{count} {status}" for status, count in totals.items()))
    return 1 if totals["failed"] or totals["suspicious"] else 0


if __name__ == "__main__":
    sys.exit(main())
