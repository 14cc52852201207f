"""What planted causes, and what an explanation confirmed, really cost: measured again, in a race of its own.

The case, the same without each planted cause (built from a suite without it), without all of them, and with each
confirmed change, one after the other, run beside each other in fresh processes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planted_networks import Planted

from qbench import suite as suites
from qbench.build import Artifact, build
from qbench.cache import store
from qbench.data import request_of
from qbench.data_preparation import prepare_data
from qbench.explain.change import Change
from qbench.explain.explanation import Explanation, chain
from qbench.explain.open_case import OpenCase, find_record, load_all_backends, open_case
from qbench.explain.time_trials import FP32, ORIGINAL, Raced, race_artifacts
from qbench.measure.paired_difference import compare_times
from qbench.measure.samples import Samples
from qbench.network import prepare_model
from qbench.plan.cases import Case
from qbench.plan.variants import Variants
from qbench.process.child_process import call
from qbench.progress.live import Silent
from qbench.record.locate import find_run
from qbench.record.schema import make_case_key
from qbench.record.stored_run import read_run

Arm = tuple[Case, Artifact, Change]
CHANGES, TRUTH = "changes.json", "truth.json"


def keep_changes(explanation: Explanation[Raced], file: Path) -> None:
    """Writes what was confirmed: the changes one after the other, and those that gain alone only."""
    steps = [step.change for step in chain(cause.trial for cause in explanation.confirmed)]
    alone = [trial.counterfactual.change for trial in explanation.hidden]
    value = {"steps": [asdict(change) for change in steps], "alone": [asdict(change) for change in alone]}
    file.write_text(json.dumps(value), encoding="utf-8")


def read_changes(file: Path) -> dict[str, list[Change]]:
    """The same."""
    changes = json.loads(file.read_text(encoding="utf-8"))
    return {name: [_restore(fields) for fields in kept] for name, kept in changes.items()}


def _restore(fields: Mapping[str, Any]) -> Change:
    recipe = {key: tuple(value) if isinstance(value, list) else value for key, value in fields["recipe"].items()}
    return Change(**{**fields, "recipe": recipe})


def measure_truth(planted: Planted, folder: Path, seconds: float) -> dict[str, Any]:
    """Of each planted cause how many times as fast the case is without it, ``alone``, and ``beyond`` all others; of
    each confirmed change the same beyond those before it (``steps``), of all of them (``together``), and of each that
    gains alone (``hidden``). The process has none of the planted variables. Run in the planted network's folder."""
    run = read_run(find_run("planted"))
    (name,) = [record.case.id for record in run.records if record.case.mode == planted.mode]
    suite = suites.read(Path("planted.yaml"), ())
    cache = store.open_cache()
    with store.in_use(cache):
        opened = open_case(run, find_record(run, name), suite, cache, Silent())
        arms = _list_arms(planted, opened, read_changes(Path(CHANGES)), folder)
        samples = _race_distinct(opened, arms, seconds)
    cases = {arm: case for arm, (case, _, _) in arms.items()}

    def gain(before: str, after: str) -> list[float] | None:
        if before not in samples or after not in samples:
            return None
        return _compare(samples[before], samples[after], cases[before], cases[after])

    steps = [ORIGINAL, *(arm for arm in arms if arm.startswith("step"))]
    return {
        "alone": {cause: gain(ORIGINAL, f"without {cause}") for cause in planted.causes},
        "beyond": {cause: gain(f"all but {cause}", "without all") for cause in planted.causes},
        "steps": [gain(before, after) for before, after in itertools.pairwise(steps)],
        "together": gain(ORIGINAL, steps[-1]),
        "hidden": [gain(ORIGINAL, arm) for arm in arms if arm.startswith("alone")],
    }


def _list_arms(
    planted: Planted, opened: OpenCase, changes: Mapping[str, Sequence[Change]], folder: Path
) -> dict[str, Arm]:
    base = Change(environment=planted.environment)
    arms: dict[str, Arm] = {
        ORIGINAL: (opened.case, opened.artifact, base),
        FP32: (opened.fp32_case, opened.fp32, Change()),
    }
    taken: dict[str, tuple[str, ...]] = {f"without {cause}": (cause,) for cause in planted.causes}
    taken |= {
        f"all but {cause}": tuple(other for other in planted.causes if other != cause) for cause in planted.causes
    }
    taken["without all"] = planted.causes
    for name, causes in taken.items():
        arms[name] = _build_planted(
            planted.take_away(causes), folder / "truth" / "-".join(causes or ("nothing",)), opened
        )
    for kind, name in (("steps", "step"), ("alone", "alone")):
        for number, kept in enumerate(changes[kind]):
            change = base.then(kept)
            case = opened.apply(change)
            arms[f"{name}{number}"] = (case, opened.build(case.variant), change)
    return arms


def _build_planted(planted: Planted, folder: Path, opened: OpenCase) -> Arm:
    suite = suites.read(planted.write(folder), ())
    variants = Variants(suite, load_all_backends(suite))
    case = variants.case(make_case_key("net", planted.mode, planted.backend, planted.threads, planted.batch_size))
    request = request_of(suite.data, suite.base, train=False)
    data = call(prepare_data, request, opened.cache, limits=opened.limits)
    metric = suite.gate.accuracy.choose_metric(base=suite.base, labelled=True)
    model = call(prepare_model, case.variant.model, data, metric, opened.cache, limits=opened.limits)
    artifact = build(
        case.variant, model=model, data=data, root=opened.cache, limits=opened.limits, progress=Silent().advance
    )
    return case, artifact, Change(environment=planted.environment)


def _race_distinct(opened: OpenCase, arms: Mapping[str, Arm], seconds: float) -> dict[str, Samples]:
    """The samples of all arms; those that are the same artifact, called in the same way, are measured once."""
    first: dict[tuple[Any, ...], str] = {}
    same = {
        name: first.setdefault(
            (
                artifact.sha256, case.variant.backend, case.threads, case.batch_size,
                tuple(sorted(item for item in change.environment.items() if item[1])), change.flush_denormals,
            ),
            name,
        )
        for name, (case, artifact, change) in arms.items()
    }  # fmt: skip
    distinct = {name: arms[name] for name in dict.fromkeys((*same.values(), FP32))}
    samples, errors = race_artifacts(opened, distinct, seconds)
    if errors:
        raise SystemExit(f"{opened.case.id}: {errors}")
    return {name: samples[other] for name, other in same.items()}


def _compare(before: Samples, after: Samples, first: Case, second: Case) -> list[float] | None:
    """How many times as fast one example is, with 95 % limits; exactly 1 for one and the same arm."""
    if before is after:
        return [1.0, 1.0, 1.0]
    difference = compare_times(before, after)
    if difference is None:
        return None
    ratio, examples = difference.ratio(), second.batch_size / first.batch_size
    return [examples * value for value in (ratio.value, ratio.low or math.nan, ratio.high or math.nan)]
