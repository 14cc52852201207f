"""Latency of the deploy models of a ResNet-18-shaped network against ONNX Runtime's own best recipe.

    python tests/benchmarks/onnx_deploy.py                    # about two minutes
    python tests/benchmarks/onnx_deploy.py --calls 100

Theirs: ``quant_pre_process`` and ``quantize_static`` to QDQ, U8S8, per channel, min/max. One thread, 1x3x224x224,
random weights; the arms are called in turn and each call is compared with theirs of the same round. Printed: the median
processor time of a call, the median of the ratios to theirs with its 95 % interval, and the largest difference from the
fake-quant model and from fp32. ``+precise``: the same file with ``session.x64quantprecision``, which adds in 32 bits.
The target is a ratio of at most 1.03 for what ``qbench onnx save`` writes on this machine (printed first). Without VNNI
that is U8S8-narrow: signed weights of which no two can overflow 16 bits; U8U8 costs more than that for 8 whole bits.
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

from qbench.onnx import api as steps
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.export import narrow_weights
from qbench.quant.onnx.export.deploy_onnxruntime import deploy
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.formats import calibration_file, scale_record
from qbench.quant.onnx.formats.rules import ActivationRule, Rule, Rules

IMAGES = 8
PRECISE = "session.x64quantprecision"


def files(folder: Path) -> dict[str, Path]:
    """Every arm's model."""
    namespace: dict[str, Any] = {}
    exec(NETWORK, namespace)
    models = {name: folder / f"{name}.onnx" for name in ("fp32", "theirs", *narrow_weights.CHOICES)}
    examples = images(IMAGES)
    onnx_file(namespace["build"]().eval(), models["fp32"])
    onnxruntime_int8(models["fp32"], models["theirs"], examples)
    calibration, scales = folder / "calibration.onnx", folder / "record.txt"
    rules = Rules(batch_num=IMAGES, common=Rule(activation=ActivationRule(algorithm="minmax")))
    steps.quantize(models["fp32"], steps.config(models["fp32"], rules=rules), calibration, scales)
    steps.calibrate(calibration, [image[None] for image in examples], scales)
    model, held = calibration_file.read(calibration), scale_record.read(scales)
    graph = model.graph()
    for choice in narrow_weights.CHOICES:
        fitted = narrow_weights.fitted(graph, model.sites, held, choice)
        deploy(graph, model.sites, fitted.record, form=fitted.form).save(models[choice])
        fake_quant(graph, model.sites, fitted.record).save(simulation(models[choice]))
    print(f"written on this machine: {narrow_weights.fitted(graph, model.sites, held).choice}")
    return models


def simulation(file: Path) -> Path:
    """The fake-quant model of a deploy model."""
    return file.with_suffix(".fake.onnx")


def sessions(models: dict[str, Path]) -> dict[str, Any]:
    """An open session for each arm, one thread."""
    opened = {name: onnxruntime_session.open_session(file) for name, file in models.items()}
    for name in ("theirs", "U8S8"):
        options = onnxruntime_session.session_options(1)
        options.add_session_config_entry(PRECISE, "1")
        opened[f"{name}+precise"] = onnxruntime_session.open_session(models[name], options=options)
    return opened


def main() -> None:
    """Builds, measures, prints one line an arm."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=40)
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as name:
        models = files(Path(name))
        opened = sessions(models)
        x = images(IMAGES + 1)[IMAGES:]
        feed = {opened["fp32"].get_inputs()[0].name: x}
        simulated = {arm: onnxruntime_session.run(simulation(models[arm]), (x,)) for arm in narrow_weights.CHOICES}
        outputs = {arm: session.run(None, feed)[0] for arm, session in opened.items()}
        times: dict[str, list[float]] = {arm: [] for arm in opened}
        for number in range(calls):
            arms = list(opened)
            for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                start = time.thread_time()
                opened[arm].run(None, feed)
                times[arm].append(time.thread_time() - start)
    rng = np.random.default_rng(0)
    for arm, seconds in times.items():
        ratios = np.array(seconds) / np.array(times["theirs"])
        drawn = np.median(rng.choice(ratios, (1000, len(ratios))), axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        largest = float(np.abs(outputs["fp32"]).max())
        fake = simulated.get(arm.removesuffix("+precise"), simulated["U8U8"])
        off = [float(np.abs(outputs[arm] - reference).max()) / largest for reference in (fake, outputs["fp32"])]
        print(
            f"{arm:<16} {np.median(seconds) * 1e3:8.2f} ms  {np.median(ratios):6.3f} [{low:.3f}, {high:.3f}] of theirs"
            f"  off by {off[0]:.2%} from fake quant, {off[1]:.2%} from fp32"
        )


if __name__ == "__main__":
    main()
