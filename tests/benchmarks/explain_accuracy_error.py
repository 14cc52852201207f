"""How often ``qbench explain --of accuracy`` names the planted cause first, and how often one that is not there.

    python tests/benchmarks/explain_accuracy_error.py FOLDER [--only GLOB] [--seeds 3]

Each planted network is a small convolutional one with seeded weights, int8 in a way that has one cause of error, or
none (``nothing``). It is built and evaluated by ``qbench run`` in FOLDER, its case then explained. What is confirmed
is tried once more on other examples (another draw to calibrate on, another to evaluate on): a cause that takes nothing
away there was not there. ``redraw`` is one that never is: other calibration examples of the same kind, tried beside
the others each time. A line for each network, then the counts. What is done is read from FOLDER.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qbench import registry
from qbench import suite as suites
from qbench.cache import store
from qbench.explain import json_text, story
from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.explain.error_trials import Evaluation
from qbench.explain.open_case import open_case
from qbench.progress.live import Silent
from qbench.record.locate import find_run
from qbench.record.stored_run import StoredRun, read_run

HERE = Path(__file__).resolve().parent
SAMPLES = 64
SUITE = """
suite: planted
models:
  - name: net
    source: {{python: "explain_accuracy_networks.py:build", args: {{kind: {kind}, seed: {seed}}}}}
data:
  dataset: {{python: "explain_accuracy_networks.py:{data}"}}
  calibrate: {{split: {train}, samples: {samples}, seed: {seed}}}
  evaluate: {{split: {test}}}
matrix: {{modes: [fp32, static], backends: [{backend}]}}
quantize: {{static: {{{recipe}}}}}
{more}
measure: {{max_seconds: 0.1}}
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A network and how it is made int8, with the cause that this has; None: nothing is wrong."""

    name: str
    cause: str | None
    backend: str
    kind: str = "plain"
    data: str = "patterns"
    recipe: str = ""
    more: str = ""
    host: str = ""


CLIPPED, LEVELS = "calibrator: percentile, percentile: 90", "symmetric: true, reduce_range: true"
NATIVE = "target: native"  # for other CPUs, too, weights have wider steps, which is a cause
PLANTED = (
    Planted(name="clipped-ort", cause="calibrator", backend="onnxruntime", recipe=CLIPPED),
    Planted(name="clipped-onednn", cause="calibrator", backend="onednn", recipe=CLIPPED),
    Planted(name="outlier-ort", cause="per-tensor", backend="onnxruntime", kind="outlier", recipe="per_channel: false"),
    Planted(name="outlier-onednn", cause="per-tensor", backend="onednn", kind="outlier", recipe="per_channel: false"),
    Planted(name="channel-ort", cause="sensitive-layers", backend="onnxruntime", kind="loud-channel", recipe=NATIVE),
    Planted(name="channel-onednn", cause="sensitive-layers", backend="onednn", kind="loud-channel", recipe=NATIVE),
    Planted(name="levels-onednn", cause="few-levels", backend="onednn", recipe=LEVELS),
    Planted(name="levels-fbgemm", cause="few-levels", backend="fbgemm", recipe=LEVELS),
    Planted(
        name="sums-avx2", cause="overflowing-sums", backend="onednn", kind="loud", host="avx2",
        recipe="target: native, last_layer_float: true", more="hosts: [native, avx2]",
    ),
    Planted(
        name="sums-fbgemm", cause="overflowing-sums", backend="fbgemm", kind="depthwise",
        recipe="narrow_weights: false, reduce_range: false",
    ),
    Planted(name="gates-onednn", cause="fixed-range", backend="onednn", kind="gates"),
    Planted(name="gates-fbgemm", cause="fixed-range", backend="fbgemm", kind="gates"),
    Planted(name="called-gates-onednn", cause="fixed-range", backend="onednn", kind="called-gates"),
    Planted(name="dark-ort", cause="calibration-data", backend="onnxruntime", data="dark"),
    Planted(name="dark-openvino", cause="calibration-data", backend="openvino", data="dark"),
    Planted(name="bright-onednn", cause="calibration-data", backend="onednn", data="bright"),
    # Not on "loud": wider steps are 41 and 3 % of its error, what a layer behind it makes of them is 98 %.
    Planted(name="steps-ort", cause="wider-steps", backend="onnxruntime", kind="loud-channel"),
    Planted(name="steps-onednn", cause="wider-steps", backend="onednn", kind="loud-channel"),
    *(
        Planted(
            name=f"heads-{backend}", cause="joined-ranges", backend=backend, kind="heads", data="unlabelled",
            more="recipe: framework-default",
        )
        for backend in ("onednn", "qnnpack", "onnxruntime")
    ),
    # That the recipe is a framework's own may cost these something; how tensors are joined does not.
    *(
        Planted(
            name=f"theirs-{kind}-onednn", cause=None, backend="onednn", kind=kind, data=data,
            more="recipe: framework-default",
        )
        for kind, data in (("even-heads", "unlabelled"), ("deep", "patterns"), ("loud-channel", "patterns"))
    ),
    Planted(name="nothing-ort", cause=None, backend="onnxruntime", recipe=NATIVE),
    Planted(name="nothing-onednn", cause=None, backend="onednn", recipe=NATIVE),
    Planted(name="nothing-fbgemm", cause=None, backend="fbgemm", recipe=NATIVE),
    Planted(name="nothing-openvino", cause=None, backend="openvino", recipe=NATIVE),
    Planted(name="nothing-deep-ort", cause=None, backend="onnxruntime", kind="deep", recipe=NATIVE),
    Planted(name="nothing-deep-onednn", cause=None, backend="onednn", kind="deep", recipe=NATIVE),
)  # fmt: skip


class Redraw(Cause):
    """Other calibration examples of the same kind: what they change is chance."""

    name = "redraw"
    title = "the calibration examples are those drawn"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Always; nobody evaluates these examples."""
        return (self.counterfactual("other examples", Change(calibrate=("train2", SAMPLES))),)


REDRAW = Redraw()


def write_suite(planted: Planted, seed: int, file: Path, suffix: str = "") -> None:
    """The suite of a planted network; ``suffix``: on the splits of that name."""
    text = SUITE.format(
        kind=planted.kind, seed=seed, data=planted.data, backend=planted.backend, recipe=planted.recipe,
        more=planted.more, samples=SAMPLES, train=f"train{suffix}", test=f"test{suffix}",
    )  # fmt: skip
    file.write_text(text, encoding="utf-8")


def explain_planted(planted: Planted, seed: int, folder: Path) -> dict[str, Any]:
    """The explanation of a planted network as JSON, with what each confirmed change takes away on other examples."""
    here = folder / f"{planted.name}-{seed}"
    answer = here / "explained.json"
    if not answer.is_file():
        here.mkdir(parents=True, exist_ok=True)
        for name in ("explain_accuracy_networks.py", "fitted_layer.py"):
            shutil.copy(HERE / name, here)
        write_suite(planted, seed, here / "planted.yaml")
        write_suite(planted, seed, here / "fresh.yaml", "2")
        command = [sys.executable, __file__, str(folder), "--one", planted.name, "--seed", str(seed)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    explained: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return explained


def explain_here(planted: Planted) -> None:
    """Runs a planted network's suite and writes its explanation; in the folder of its own."""
    subprocess.run([sys.executable, "-m", "qbench", "run", "planted.yaml", "--quiet"], check=False)
    registry.BUILT_IN["cause"]["redraw"] = "explain_accuracy_error:REDRAW"
    run = read_run(find_run("planted"))
    recipe = "@framework-default" if "framework-default" in planted.more else ""
    case = f"net/static{recipe}/{planted.backend}/t1/b1{planted.host and '/'}{planted.host}"
    explained = story.explain_case(
        run, case, concerns=("accuracy",), suite_file=None, progress=Silent(), max_seconds=1.0
    )
    assert explained.losses is not None
    alone = [loss.trial.counterfactual for loss in explained.losses.confirmed]
    alone += [trial.counterfactual for trial in explained.losses.hidden]
    result: dict[str, Any] = json.loads(json_text.as_json(explained))["accuracy"]
    result["passes"] = explained.loses_little
    result["again"] = try_again(run, case, alone)
    Path("explained.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def try_again(run: StoredRun, case: str, changes: Sequence[Counterfactual]) -> list[dict[str, Any]]:
    """The share of the error that each change takes away on examples that the explanation did not have."""
    suite, cache = suites.read(Path("fresh.yaml")), store.open_cache()
    with store.in_use(cache), tempfile.TemporaryDirectory() as folder:
        opened = open_case(run, run.by_id[case], suite, cache, Silent())
        evaluation = Evaluation(opened, Path(folder))
        again = []
        for counterfactual in changes:
            change = counterfactual.change
            if change.calibrate is not None:
                other = {"test": "test2", "train2": "train"}[change.calibrate[0]]
                change = replace(change, calibrate=(other, change.calibrate[1]))
            trial = evaluation.try_change(replace(counterfactual, change=change))
            share = None if trial.saving is None else trial.share
            again.append({"cause": counterfactual.cause, "change": counterfactual.text, "removed": share})
    return again


@dataclass(kw_only=True)
class Counts:
    """What is counted over networks."""

    planted: int = 0
    first: int = 0
    confirmed: int = 0
    tried_others: int = 0
    absent: int = 0
    redraws: int = 0
    redraws_confirmed: int = 0
    sound: int = 0
    sound_with_cause: int = 0


def count(planted: Planted, explained: dict[str, Any], counts: Counts) -> str:
    """Counts a network; its line."""
    causes = [cause for cause in explained["causes"] if cause["cause"] != "redraw"]
    names = [cause["cause"] for cause in causes]
    alone = {(each["cause"], each["change"]): each for each in (*explained["causes"], *explained["hidden"])}
    tried = {*alone, *((each["cause"], each["change"]) for each in explained["unconfirmed"])}
    counts.redraws += any(cause == "redraw" for cause, _ in tried)
    counts.redraws_confirmed += any(cause == "redraw" for cause, _ in alone)
    counts.tried_others += sum(cause not in (planted.cause, "redraw") for cause, _ in tried)
    again = [each for each in explained["again"] if each["cause"] not in (planted.cause, "redraw")]
    counts.absent += sum(each["removed"] is not None and each["removed"] <= 0 for each in again)
    shown = ", ".join(f"{each['cause']} ({each['change']}) {100 * each['removed']['value']:.0f} %" for each in causes)
    if planted.cause is None:
        theirs = ("framework-default",) if "framework-default" in planted.more else ()
        whole = [name for name in names if name not in ("sensitive-layers", *theirs)]
        counts.sound += 1
        counts.sound_with_cause += bool(whole)
        mark = "NO " if whole else "ok "
    else:
        counts.planted += 1
        counts.first += names[:1] == [planted.cause]
        counts.confirmed += planted.cause in {cause for cause, _ in alone}
        mark = "ok " if names[:1] == [planted.cause] else "NO "
    decibels = explained["sqnr_db"]
    verdict = "passes" if explained["passes"] else "does not pass"
    return f"{mark} {planted.name:20} {decibels or 0:5.1f} dB, {verdict}: {shown or 'none'}"


def main() -> None:
    """Explains every planted network and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--one")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.one:
        (planted,) = [each for each in PLANTED if each.name == arguments.one]
        os.chdir(folder / f"{planted.name}-{arguments.seed}")
        explain_here(planted)
        return
    counts = Counts()
    for planted in PLANTED:
        if any(fnmatch.fnmatch(planted.name, glob) for glob in arguments.only.split(",")):
            for seed in range(arguments.seeds):
                print(count(planted, explain_planted(planted, seed, folder), counts), flush=True)
    print(
        f"planted cause first in {counts.first} of {counts.planted}, confirmed in {counts.confirmed}; of "
        f"{counts.tried_others} other changes tried, {counts.absent} confirmed that take nothing away on other "
        f"examples; a redraw of the calibration examples confirmed in {counts.redraws_confirmed} of {counts.redraws}; "
        f"a cause of the whole recipe confirmed where nothing is wrong in {counts.sound_with_cause} of {counts.sound}"
    )


if __name__ == "__main__":
    main()
