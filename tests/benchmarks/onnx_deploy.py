"""Latency of the deploy models of a ResNet-18-shaped network against ONNX Runtime's own best recipe.

    python tests/benchmarks/onnx_deploy.py                    # about two minutes
    python tests/benchmarks/onnx_deploy.py --calls 100

Theirs: ``quant_pre_process`` and ``quantize_static`` to QDQ, U8S8, per channel, min/max. One thread, 1x3x224x224,
random weights; the arms are called in turn and each call is compared with theirs of the same round. Printed: the median
latency, the median of the ratios to theirs with its 95 % interval, and the largest difference from the fake-quant model
and from fp32. ``+precise``: the same file with ``session.x64quantprecision``, which adds products in 32 bits.
The target is a ratio of at most 1.03 for the same form (U8S8); what U8U8 costs more is the price of exact sums without
VNNI.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from hand_built import onnx_file, onnxruntime_int8
from resnet18 import NETWORK, images

from qbench import onnx as steps
from qbench.quant import onnx_model
from qbench.quant.uniform.calibration.calibration_model import CalibrationModel
from qbench.quant.uniform.files import record
from qbench.quant.uniform.files.rules import ActivationRule, Rule, Rules
from qbench.quant.uniform.outputs.deploy_onnxruntime import FORMS, deploy, form_for
from qbench.quant.uniform.outputs.fake_quant import fake_quant

IMAGES = 8
PRECISE = "session.x64quantprecision"


def files(folder: Path) -> dict[str, Path]:
    """Every arm's model."""
    namespace: dict[str, Any] = {}
    exec(NETWORK, namespace)
    made = {name: folder / f"{name}.onnx" for name in ("fp32", "theirs", "fake quant", *FORMS)}
    seen = images(IMAGES)
    onnx_file(namespace["build"]().eval(), made["fp32"])
    onnxruntime_int8(made["fp32"], made["theirs"], seen)
    calibration, scales = folder / "calibration.onnx", folder / "record.txt"
    rules = Rules(batch_num=IMAGES, common=Rule(activation=ActivationRule(algorithm="minmax")))
    steps.quantize(made["fp32"], steps.config(made["fp32"], rules=rules), calibration, scales)
    steps.calibrate(calibration, [one[None] for one in seen], scales)
    model, held = CalibrationModel.read(calibration), record.read(scales)
    fake_quant(model.graph(), model.sites, held).save(made["fake quant"])
    for form in FORMS:
        deploy(model.graph(), model.sites, held, form=form).save(made[form])
    return made


def sessions(made: dict[str, Path]) -> dict[str, Any]:
    """An open session for each arm, one thread."""
    opened = {name: onnx_model.open_session(file) for name, file in made.items() if name != "fake quant"}
    for name in ("theirs", "U8S8"):
        options = onnx_model.session_options(1)
        options.add_session_config_entry(PRECISE, "1")
        opened[f"{name}+precise"] = onnx_model.open_session(made[name], options=options)
    return opened


def main() -> None:
    """Builds, measures, prints one line an arm."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=40)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as name:
        made = files(Path(name))
        opened = sessions(made)
        x = images(IMAGES + 1)[IMAGES:]
        feed = {opened["fp32"].get_inputs()[0].name: x}
        simulated = onnx_model.run(made["fake quant"], (x,))
        outputs = {arm: session.run(None, feed)[0] for arm, session in opened.items()}
        times: dict[str, list[float]] = {arm: [] for arm in opened}
        for number in range(calls):
            arms = list(opened)
            for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                start = time.perf_counter()
                opened[arm].run(None, feed)
                times[arm].append(time.perf_counter() - start)
    print(f"this machine's form: {form_for()}")
    rng = np.random.default_rng(0)
    for arm, seen in times.items():
        ratios = np.array(seen) / np.array(times["theirs"])
        drawn = np.median(rng.choice(ratios, (1000, len(ratios))), axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        largest = float(np.abs(outputs["fp32"]).max())
        off = [float(np.abs(outputs[arm] - one).max()) / largest for one in (simulated, outputs["fp32"])]
        print(
            f"{arm:<16} {np.median(seen) * 1e3:8.2f} ms  {np.median(ratios):6.3f} [{low:.3f}, {high:.3f}] of theirs"
            f"  off by {off[0]:.2%} from fake quant, {off[1]:.2%} from fp32"
        )


if __name__ == "__main__":
    main()
