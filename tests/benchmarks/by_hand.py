"""qbench's int8 against int8 by hand, on seven networks, in the same runtime.

    pip install -e '.[openvino]'
    python tests/benchmarks/by_hand.py                            # about ten minutes
    python tests/benchmarks/by_hand.py unet encoder --calls 100
    python tests/benchmarks/by_hand.py --forms                    # ONNX Runtime's other forms of a file, too
    python tests/benchmarks/by_hand.py --symmetric                # qbench with symmetric activations on OpenVINO, too

By hand: on ONNX Runtime ``quant_pre_process`` and ``quantize_static`` (QDQ, U8S8, per channel, min/max), on OpenVINO
``nncf.quantize`` with its default preset. qbench: the default static recipe of each backend. Same 16 calibration
examples, one thread; the arms of a runtime are called in random order and each call is compared with that by hand of
the same round. Printed: the median processor time of a call (other programs on the machine cost a share of it, the same
of all arms), the median of the ratios to by hand with its 95 % interval, and the SQNR of the outputs of 16 other
examples against fp32 in dB. Random weights, BatchNorm's statistics from the data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import hand_networks
from hand_built import onnxruntime_dynamic, onnxruntime_int8, openvino_int8

from qbench import registry
from qbench.backends.base import BuildJob
from qbench.models.base import Network
from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.recipe import Recipe

EXAMPLES = 16
DEFAULT = Recipe()
Run = Callable[[np.ndarray], np.ndarray]


def examples(count: int, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random examples; images are smooth, with some noise."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    made = rng.standard_normal((count, *shape)).astype(np.float32)
    if len(shape) == 3:
        made = gaussian_filter(made, (0, 0, 3, 3)) * 6 + 0.1 * rng.standard_normal(made.shape)
    return made.astype(np.float32)


def network(name: str) -> tuple[Any, tuple[int, ...]]:
    """A network in eval mode, and the shape of its input."""
    import torch

    build, shape = hand_networks.NETWORKS[name]
    torch.manual_seed(0)
    module = build().train()
    with torch.inference_mode():
        for seed in range(4):
            module(torch.from_numpy(examples(4, shape, 100 + seed)))
    return module.eval(), shape


def by_qbench(backend: str, mode: str, module: Any, seen: np.ndarray, folder: Path, recipe: Recipe = DEFAULT) -> Path:
    """The file that a backend builds with its default recipe, or with what another one chooses."""
    folder.mkdir()
    found = registry.load("backend", backend)
    job = BuildJob(
        network=Network(kind="torch", module=module),
        mode=mode,
        recipe=found.resolve(mode, recipe),
        calibration=(seen,),
        training=None,
        folder=folder,
    )
    return folder / found.build(job).file


FORMS = {
    "operators": {"form": "QOperator"},
    "signed": {"activations": "QInt8"},
    "signed operators": {"form": "QOperator", "activations": "QInt8"},
}


def other_forms(fp32: Path, seen: np.ndarray, folder: Path) -> dict[str, Path]:
    """Arm -> file of the same network by hand in another form; those that its quantizer refuses are told."""
    made: dict[str, Path] = {}
    for arm, keys in {**FORMS, "dynamic": None}.items():
        file = folder / f"{arm}.onnx"
        try:
            onnxruntime_dynamic(fp32, file) if keys is None else onnxruntime_int8(fp32, file, seen, **keys)
            opened("onnxruntime", file)
            made[arm] = file
        except Exception as error:  # its own words
            print(f"{arm}: {type(error).__name__}: {str(error)[:100]}", flush=True)
    return made


def files(name: str, folder: Path, *, forms: bool = False, symmetric: bool = False) -> dict[str, dict[str, Path]]:
    """Runtime -> arm -> file."""
    module, shape = network(name)
    seen = examples(EXAMPLES, shape, 5)
    fp32 = by_qbench("onnxruntime", "fp32", module, seen, folder / "fp32")
    named = fp32.with_name("named.onnx")
    renamed(fp32, named)
    onnxruntime_int8(named, folder / "theirs.onnx", seen)
    openvino_int8(fp32, folder / "theirs.xml", seen)
    chosen = Recipe(symmetric=True)
    others = {"symmetric": by_qbench("openvino", "static", module, seen, folder / "s", chosen)} if symmetric else {}
    return {
        "onnxruntime": {
            "by hand": folder / "theirs.onnx",
            "qbench": by_qbench("onnxruntime", "static", module, seen, folder / "ort"),
            "fp32": fp32,
            **(other_forms(named, seen, folder) if forms else {}),
        },
        "openvino": {
            "by hand": folder / "theirs.xml",
            "qbench": by_qbench("openvino", "static", module, seen, folder / "ov"),
            **others,
            "fp32": fp32,
        },
    }


def renamed(fp32: Path, file: Path) -> None:
    """The file with the input name that ``hand_built`` feeds."""
    import onnx

    model = onnx.load(str(fp32))
    old = model.graph.input[0].name
    model.graph.input[0].name = "input"
    for node in model.graph.node:
        node.input[:] = ["input" if one == old else one for one in node.input]
    onnx.save(model, str(file))


def opened(runtime: str, file: Path) -> Run:
    """One thread, as qbench measures it."""
    if runtime == "openvino":
        request = openvino_model.compile_file(file).create_infer_request()
        return lambda x: np.array(request.infer([x])[0])
    session = onnxruntime_session.open_session(file)
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def outputs_of(run: Run, inputs: np.ndarray) -> np.ndarray:
    """Of each example by itself, as doubles."""
    return np.concatenate([run(x[None]) for x in inputs]).astype(np.float64)


def measured(arms: dict[str, Run], x: np.ndarray, calls: int) -> dict[str, np.ndarray]:
    """Processor seconds of each call, the same rounds for all arms."""
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for run in arms.values():
        for _ in range(5):
            run(x)
    for _ in range(calls):
        for arm in rng.permutation(list(arms)):
            start = time.process_time()
            arms[arm](x)
            times[arm].append(time.process_time() - start)
    return {arm: np.array(seen) for arm, seen in times.items()}


def main() -> None:
    """Builds, measures, prints a line for each network, runtime and arm."""
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=list(hand_networks.NETWORKS))
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--forms", action="store_true", help="on ONNX Runtime other forms of the file, too")
    parser.add_argument("--symmetric", action="store_true", help="on OpenVINO symmetric activations, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            made = files(name, Path(folder), forms=options.forms, symmetric=options.symmetric)
            others = examples(EXAMPLES, hand_networks.NETWORKS[name][1], 99)
            x = others[:1]
            expected = outputs_of(opened("onnxruntime", made["onnxruntime"]["fp32"]), others)
            for runtime, arms in made.items():
                runs = {arm: opened(runtime, file) for arm, file in arms.items()}
                noise = {arm: float(((outputs_of(run, others) - expected) ** 2).sum()) for arm, run in runs.items()}
                seen = measured(runs, x, options.calls)
                for arm, seconds in seen.items():
                    ratios = seconds / seen["by hand"]
                    low, high = np.quantile(np.median(rng.choice(ratios, (1000, len(ratios))), axis=1), [0.025, 0.975])
                    loss = 10 * np.log10((expected**2).sum() / max(noise[arm], 1e-30))
                    milliseconds, ratio = np.median(seconds) * 1e3, np.median(ratios)
                    print(
                        f"{name:<9} {runtime:<12} {arm:<16} {milliseconds:8.2f} ms  {ratio:.3f} "
                        f"[{low:.3f}, {high:.3f}] of by hand  {loss:6.1f} dB",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
