"""qbench's int8 against int8 by hand, on seven networks, in the same runtime.

    pip install -e '.[openvino]'
    python tests/benchmarks/by_hand.py                            # about ten minutes
    python tests/benchmarks/by_hand.py unet encoder --rounds 10
    python tests/benchmarks/by_hand.py --forms                    # other forms of the files, too
    python tests/benchmarks/by_hand.py --symmetric                # qbench with symmetric activations on OpenVINO, too
    python tests/benchmarks/by_hand.py unet --profile             # where the time goes, operator by operator
    python tests/benchmarks/by_hand.py bert --builds              # time and memory of the builds alone

By hand: on ONNX Runtime ``quant_pre_process`` and ``quantize_static`` (QDQ, U8S8, per channel, min/max), on OpenVINO
``nncf.quantize`` with its default preset. qbench: the default static recipe of each backend. Same 16 calibration
examples, one thread; each arm of a runtime in a process of its own, as qbench measures and as it is deployed: OpenVINO
compiles for a batch of 1; blocks of calls in random order, each compared with that by hand of the same round, in
several generations of processes. In one process the arms take the caches from each other at each call, and where the
weights of one happen to lie decides (qbench's ViT was a tenth slower there than a copy of it in OpenVINO's own format,
and as fast where each was alone).
Printed: the median processor time of a call (other programs on the machine cost a share of it, the same of all arms),
the median over the generations of the ratio to by hand with its 95 % interval (Student's t on the logarithms), and the
SQNR of the outputs of 16 other examples against fp32 in dB; before that the seconds of each build, and by how much the
process grew meanwhile. ``--profile`` prints below each runtime what its operators take in either file, by the runtime's
own counters, the largest differences first. ``--builds``: as a run with that runtime alone builds, fp32 first and then
static from the same exported file, beside what the tool by hand takes for that file, and the runtime to open it and
call it twice. Random weights, BatchNorm's statistics from the data. Networks as people have them, in the size that they
have: ``python tests/ecosystem/run.py FOLDER --times``.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import hand_networks
from hand_built import onnxruntime_dynamic, onnxruntime_int8, openvino_int8

from qbench import registry
from qbench.backends.base import BuildJob
from qbench.machine import fingerprint
from qbench.models.base import Network
from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.recipe import Recipe

EXAMPLES = 16
CALIBRATION = 5  # the seed of those for it
BLOCK = 10  # calls of an arm, one after the other, behind as many that warm its caches
GENERATIONS = 5
PROFILED_CALLS = 40
DEFAULT = Recipe()
Run = Callable[[np.ndarray], np.ndarray]
T = TypeVar("T")
HAND_FILES = {"onnxruntime": "theirs.onnx", "openvino": "theirs.xml"}
ANY = ", any batch"  # how an arm's name ends that OpenVINO compiles for any number of examples, and not for one


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network in eval mode, and what draws examples of its one input from a count and a seed."""

    module: Any
    draw: Callable[[int, int], np.ndarray]


def examples(shape: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    """Random examples; images are smooth, with some noise."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((count, *shape)).astype(np.float32)
    if len(shape) == 3:
        drawn = gaussian_filter(drawn, (0, 0, 3, 3)) * 6 + 0.1 * rng.standard_normal(drawn.shape)
    return drawn.astype(np.float32)


def make_subject(name: str) -> Subject:
    """One of the seven networks."""
    import torch

    build, shape = hand_networks.NETWORKS[name]
    torch.manual_seed(0)
    module = build().train()
    with torch.inference_mode():
        for seed in range(4):
            module(torch.from_numpy(examples(shape, 4, 100 + seed)))
    return Subject(module=module.eval(), draw=functools.partial(examples, shape))


def by_qbench(backend: str, mode: str, make: Callable[[], Subject], folder: Path, recipe: Recipe = DEFAULT) -> Path:
    """The file that a backend builds with its default recipe, or with what another one chooses. Builds beside each
    other share what a run shares. Prints its time and memory."""
    prepare = functools.partial(load_libraries, backend, mode)
    work = functools.partial(build_sharing, backend, mode, folder, recipe)
    return measure_costs(f"built: {mode} on {backend}", make, prepare, work)


def by_their_tool(runtime: str, make: Callable[[], Subject], fp32: Path, file: Path) -> None:
    """The file that the runtime's own tool makes of an fp32 file; prints as ``by_qbench``."""
    prepare = functools.partial(load_their_tool, runtime)
    measure_costs(f"built: by hand on {runtime}", make, prepare, functools.partial(build_by_hand, runtime, fp32, file))


def call_file(runtime: str, make: Callable[[], Subject], fp32: Path) -> None:
    """Opens an fp32 file as it is deployed and calls it twice on one example; prints as ``by_qbench``."""
    prepare = functools.partial(load_libraries, runtime, "fp32")
    measure_costs(f"called: fp32 on {runtime}", make, prepare, functools.partial(open_and_call, runtime, fp32))


def measure_costs(title: str, make: Callable[[], Subject], prepare: Callable[[], None], work: Callable[..., T]) -> T:
    """What ``work`` returns of a network and calibration data, in a process of its own, as in a run: memory that others
    have left in pieces would be taken anew. Prints its time and memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        value, costs = pool.submit(run_work, make, prepare, work).result()
    print(f"{title} in {costs}", flush=True)
    return value


def run_work(make: Callable[[], Subject], prepare: Callable[[], None], work: Callable[..., T]) -> tuple[T, str]:
    """What ``work`` returns, and in words its time and memory, without what libraries take that are imported once:
    ``prepare`` has them do the same for a small network."""
    warnings.simplefilter("ignore")
    prepare()
    subject = make()
    calibration = subject.draw(EXAMPLES, CALIBRATION)
    before, started = start_peak(), time.monotonic()
    value = work(subject.module, calibration)
    seconds, grown = time.monotonic() - started, read_peak() - before
    weights = subject.module.state_dict().values()
    held = calibration.nbytes + sum(tensor.numel() * tensor.element_size() for tensor in weights)
    return value, f"{seconds:.1f} s, {grown >> 20} MB more held, model and data have {held >> 20}"


def build_sharing(backend: str, mode: str, folder: Path, recipe: Recipe, module: Any, calibration: np.ndarray) -> Path:
    """Builds, sharing what a run shares with the builds beside it."""
    return build(backend, mode, module, calibration, folder, recipe, functools.partial(fetch_shared, folder.parent))


def build_by_hand(runtime: str, fp32: Path, file: Path, module: Any, calibration: np.ndarray) -> None:
    """As the runtime's own tool builds; of the network there is the file alone."""
    if runtime == "openvino":
        openvino_int8(fp32, file, calibration)
    else:
        onnxruntime_int8(name_input(fp32), file, calibration)


def open_and_call(runtime: str, fp32: Path, module: Any, calibration: np.ndarray) -> None:
    """One example, twice."""
    run = opened(runtime, fp32, calibration[:1])
    for _ in range(2):
        run(calibration[:1])


def make_small() -> tuple[Any, np.ndarray]:
    """A network of a few hundred weights, in eval mode, and examples for it."""
    from torch import nn

    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return module.eval(), examples((3, 32, 32), EXAMPLES, 1)


def load_libraries(backend: str, mode: str) -> None:
    """Builds a small network."""
    with tempfile.TemporaryDirectory() as folder:
        build(backend, mode, *make_small(), Path(folder) / "build", DEFAULT)


def load_their_tool(runtime: str) -> None:
    """Builds a small network by hand."""
    with tempfile.TemporaryDirectory() as folder:
        fp32 = build("onnxruntime", "fp32", *make_small(), Path(folder) / "fp32", DEFAULT)
        build_by_hand(runtime, fp32, Path(folder) / HAND_FILES[runtime], None, make_small()[1])


def build(
    backend: str,
    mode: str,
    module: Any,
    calibration: np.ndarray,
    folder: Path,
    recipe: Recipe,
    shared: Any = None,
) -> Path:
    """The file of a build, calibrated on these examples; ``shared`` as of ``BuildJob``."""
    folder.mkdir()
    builder = registry.load("backend", backend)
    job = BuildJob(
        network=Network(kind="torch", module=module),
        mode=mode,
        recipe=builder.resolve(mode, recipe),
        calibration=(calibration,),
        training=None,
        folder=folder,
        shared=shared,
    )
    return folder / builder.build(job).file


def fetch_shared(folder: Path, ingredients: dict[str, Any], make: Callable[[Path], None]) -> Path:
    """The file of these ingredients, made where it is not there yet."""
    file = folder / hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()
    if not file.exists():
        make(file)
    return file


def start_peak() -> int:
    """The bytes of memory that this process holds now, from which ``read_peak`` counts anew."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return read_peak()


def read_peak() -> int:
    """The most bytes of memory that this process held since ``start_peak``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


FORMS = {
    "operators": {"form": "QOperator"},
    "signed": {"activations": "QInt8"},
    "signed operators": {"form": "QOperator", "activations": "QInt8"},
}


def other_forms(fp32: Path, calibration: np.ndarray, folder: Path) -> dict[str, Path]:
    """Arm -> file of the same network by hand in another form; those that its quantizer refuses are told."""
    arms: dict[str, Path] = {}
    for arm, keys in {**FORMS, "dynamic": None}.items():
        file = folder / f"{arm}.onnx"
        try:
            onnxruntime_dynamic(fp32, file) if keys is None else onnxruntime_int8(fp32, file, calibration, **keys)
            opened("onnxruntime", file, calibration)
            arms[arm] = file
        except Exception as error:  # its own words
            print(f"{arm}: {type(error).__name__}: {str(error)[:100]}", flush=True)
    return arms


def for_other_cpu(module: Any, calibration: np.ndarray, folder: Path) -> tuple[str, Path]:
    """The arm and file that OpenVINO gets of a network on a CPU without AMX, or with it where this one has none."""
    own = fingerprint.onednn_isa()
    has = "amx_int8" in own
    other = tuple(name for name in own if name != "amx_int8") if has else (*own, "amx_int8")
    with mock.patch.object(fingerprint, "onednn_isa", return_value=other):
        file = build("openvino", "static", module, calibration, folder, DEFAULT)
    return ("as without AMX" if has else "as with AMX"), file


def fix_batch(file: Path, target: Path) -> Path:
    """An ONNX file for a batch of 1 alone, as ``python -m onnxruntime.tools.make_dynamic_shape_fixed`` makes it."""
    import onnx
    from onnxruntime.tools.onnx_model_utils import make_dim_param_fixed

    model = onnx.load(str(file))
    make_dim_param_fixed(model.graph, model.graph.input[0].type.tensor_type.shape.dim[0].dim_param, 1)
    onnx.save(model, str(target))
    return target


def files(
    make: Callable[[], Subject], folder: Path, *, forms: bool = False, symmetric: bool = False
) -> dict[str, dict[str, Path]]:
    """Runtime -> arm -> file."""
    subject = make()
    module, calibration = subject.module, subject.draw(EXAMPLES, CALIBRATION)
    fp32 = by_qbench("onnxruntime", "fp32", make, folder / "fp32")
    by_hand = {runtime: folder / name for runtime, name in HAND_FILES.items()}
    for runtime, file in by_hand.items():
        build_by_hand(runtime, fp32, file, module, calibration)
    chosen = Recipe(symmetric=True)
    others = {"symmetric": by_qbench("openvino", "static", make, folder / "s", chosen)} if symmetric else {}
    others |= dict([for_other_cpu(module, calibration, folder / "o")]) if forms else {}
    own = by_qbench("openvino", "static", make, folder / "ov")
    if forms:
        others |= {"by hand" + ANY: by_hand["openvino"], "qbench" + ANY: own}
    on_onnxruntime = by_qbench("onnxruntime", "static", make, folder / "ort")
    more = other_forms(name_input(fp32), calibration, folder) if forms else {}
    more |= {"qbench, fixed": fix_batch(on_onnxruntime, folder / "fixed.onnx")} if forms else {}
    return {
        "onnxruntime": {
            "by hand": by_hand["onnxruntime"],
            "qbench": on_onnxruntime,
            "fp32": fp32,
            **more,
        },
        "openvino": {
            "by hand": by_hand["openvino"],
            "qbench": own,
            **others,
            "fp32": fp32,
        },
    }


def name_input(fp32: Path) -> Path:
    """The same beside it with the input name that ``hand_built`` feeds."""
    import onnx

    file = fp32.with_suffix(".named.onnx")
    model = onnx.load(str(fp32))
    old = model.graph.input[0].name
    model.graph.input[0].name = "input"
    for node in model.graph.node:
        node.input[:] = ["input" if tensor == old else tensor for tensor in node.input]
    onnx.save(model, str(file))
    return file


def opened(runtime: str, file: Path, x: np.ndarray, *, any_batch: bool = False) -> Run:
    """One thread, as qbench measures it: OpenVINO compiles for as many examples as ``x`` has, if not for any number."""
    if runtime == "openvino":
        request = openvino_model.compile_file(file, () if any_batch else (x,)).create_infer_request()
        return lambda x: np.array(request.infer([x])[0])
    session = onnxruntime_session.open_session(file)
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x})[0]


def outputs_of(run: Run, inputs: np.ndarray) -> np.ndarray:
    """Of each example by itself, as doubles."""
    return np.concatenate([run(x[None]) for x in inputs]).astype(np.float64)


def serve(connection: Any, runtime: str, arm: str, file: Path, x: np.ndarray) -> None:
    """In a process of its own: the processor seconds of each call of a block, as often as it is asked."""
    run = opened(runtime, file, x, any_batch=arm.endswith(ANY))
    while connection.recv():
        for _ in range(BLOCK):
            run(x)
        seconds = []
        for _ in range(BLOCK):
            start = time.process_time()
            run(x)
            seconds.append(time.process_time() - start)
        connection.send(seconds)


def measured(runtime: str, arms: dict[str, Path], x: np.ndarray, rounds: int) -> dict[str, np.ndarray]:
    """Processor seconds of the median call of each block, (generations, rounds), the same rounds for all arms."""
    rng = np.random.default_rng(0)
    seconds = {arm: np.zeros((GENERATIONS, rounds)) for arm in arms}
    spawn = multiprocessing.get_context("spawn")
    for generation in range(GENERATIONS):
        pipes, processes = {}, []
        for arm in rng.permutation(list(arms)).tolist():
            pipes[arm], theirs = spawn.Pipe()
            processes.append(spawn.Process(target=serve, args=(theirs, runtime, arm, arms[arm], x), daemon=True))
            processes[-1].start()
            theirs.close()
        for number in range(rounds):
            for arm in rng.permutation(list(arms)).tolist():
                pipes[arm].send(True)
                seconds[arm][generation, number] = np.median(pipes[arm].recv())
        for pipe in pipes.values():
            pipe.send(False)
        for process in processes:
            process.join()
    return seconds


def print_profile(runtime: str, arms: dict[str, Path], x: np.ndarray) -> None:
    """A line for each operator of a runtime: how many there are and the microseconds of all in a call of the file by
    hand and of qbench's, each file in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        by_hand, own = (pool.apply(sum_operators, (runtime, arms[arm], x)) for arm in ("by hand", "qbench"))
    lines = []
    for operator in sorted(by_hand.keys() | own.keys()):
        (count, seconds), (own_count, own_seconds) = (table.get(operator, (0, 0.0)) for table in (by_hand, own))
        text = f"by hand {count:4} x {seconds * 1e6:8.0f} us   qbench {own_count:4} x {own_seconds * 1e6:8.0f} us"
        lines.append((-abs(own_seconds - seconds), f"    {operator:<60} {text}"))
    for _, line in sorted(lines):
        print(line, flush=True)


def sum_operators(runtime: str, file: Path, x: np.ndarray) -> dict[str, tuple[int, float]]:
    """Operator -> how many nodes of it one call runs, and the seconds of all."""
    profile = registry.load("backend", runtime).time_nodes(file, (x,), threads=1, calls=PROFILED_CALLS)
    table: dict[str, tuple[int, float]] = {}
    for node in profile.nodes:
        count, seconds = table.get(node.operator, (0, 0.0))
        table[node.operator] = (count + 1, seconds + node.seconds)
    return table


def ratio_of(seconds: np.ndarray, by_hand: np.ndarray) -> tuple[float, float, float]:
    """The ratio to by hand, each block over that of its round, and its limits by the generations of processes."""
    from scipy.special import stdtrit

    logs = np.median(np.log(seconds / by_hand), axis=1)
    reach = stdtrit(len(logs) - 1, 0.975) * logs.std(ddof=1) / np.sqrt(len(logs))
    return float(np.exp(logs.mean())), float(np.exp(logs.mean() - reach)), float(np.exp(logs.mean() + reach))


def main(
    words: Sequence[str] | None = None,
    names: Sequence[str] = tuple(hand_networks.NETWORKS),
    make: Callable[[str], Subject] = make_subject,
) -> None:
    """Builds, measures, prints a line for each network, runtime and arm; ``make`` makes the networks of ``names``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=list(names))
    parser.add_argument("--rounds", type=int, default=20, help="blocks of each arm in a generation (default 20)")
    parser.add_argument(
        "--forms",
        action="store_true",
        help="other forms of the file, for a CPU with or without AMX, on OpenVINO for any batch size, and the "
        "file for ONNX Runtime with its batch size fixed afterwards",
    )
    parser.add_argument("--symmetric", action="store_true", help="on OpenVINO symmetric activations, too")
    parser.add_argument("--profile", action="store_true", help="what each operator takes in both files")
    parser.add_argument("--builds", action="store_true", help="only time and memory of builds")
    options = parser.parse_args(words)
    warnings.simplefilter("ignore")
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            remake = functools.partial(make, name)
            if options.builds:
                print(f"{name}:", flush=True)
                for backend in ("onnxruntime", "openvino"):
                    (Path(folder) / backend).mkdir()
                    beside = Path(folder) / backend
                    fp32, _ = (by_qbench(backend, mode, remake, beside / mode) for mode in ("fp32", "static"))
                    by_their_tool(backend, remake, fp32, beside / HAND_FILES[backend])
                    call_file(backend, remake, fp32)
                continue
            subject = remake()
            runtimes = files(remake, Path(folder), forms=options.forms, symmetric=options.symmetric)
            others = subject.draw(EXAMPLES, 99)
            example = others[:1]
            expected = outputs_of(opened("onnxruntime", runtimes["onnxruntime"]["fp32"], example), others)
            for runtime, arms in runtimes.items():
                runs = {arm: opened(runtime, file, example, any_batch=arm.endswith(ANY)) for arm, file in arms.items()}
                errors = {arm: outputs_of(run, others) - expected for arm, run in runs.items()}
                blocks = measured(runtime, arms, example, options.rounds)
                for arm, seconds in blocks.items():
                    ratio, low, high = ratio_of(seconds, blocks["by hand"])
                    loss = 10 * np.log10((expected**2).sum() / max((errors[arm] ** 2).sum(), 1e-30))
                    milliseconds = np.median(seconds) * 1e3
                    print(
                        f"{name:<9} {runtime:<12} {arm:<16} {milliseconds:8.2f} ms  {ratio:.3f} "
                        f"[{low:.3f}, {high:.3f}] of by hand  {loss:6.1f} dB",
                        flush=True,
                    )
                if options.profile:
                    print_profile(runtime, arms, others[:1])


if __name__ == "__main__":
    main()
