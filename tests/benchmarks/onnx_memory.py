"""Peak memory of ``qbench onnx`` and of the static build of ``qbench run``, against plain fp32 inference of one file.

    python tests/benchmarks/onnx_memory.py                      # EfficientNet-Lite0 of the zoo; about five minutes
    python tests/benchmarks/onnx_memory.py --model my.onnx --images 50 --calibrator hfmg

The limit is 1.3 times the peak of fp32 inference plus 256 KB for each calibrated tensor. Each command runs in a process
of its own, on images that are made one by one; ``child`` is the peak of a process that the command starts for the work
on the graph, ``tree`` the most resident memory of all its processes together, pages that they share counted for each,
looked at every 10 ms. The build runs in a worker as ``qbench run`` starts it, and so does its fp32 inference; its
``loop`` is the peak from the first to the last batch, ``whole`` that of all of it. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

COMMAND = "import sys; from qbench.cli.main import main; sys.argv[0] = 'qbench'; main()"
DATA = """
import numpy as np
def batches():
    base = np.random.default_rng(0).standard_normal((8, *{shape}), dtype=np.float32)
    for number in range({count}):
        yield base[number % 8 : number % 8 + 1] * 0.5 + base[number * 3 % 8 : number * 3 % 8 + 1]
"""


def export(file: Path) -> None:
    """The zoo's EfficientNet-Lite0 as ``qbench run`` exports it, without torch in the processes that are measured."""
    code = (
        "import sys, torch; from pathlib import Path; from qbench import registry\n"
        "from qbench.quant.onnx import onnxruntime_session\n"
        "model = registry.load('model', 'efficientnet-lite0')\n"
        "module = model.build()\n"
        "module.load_state_dict(torch.load(model.weights(), map_location='cpu', weights_only=True))\n"
        "export_torch.export(module.eval(), (torch.zeros(1, 3, 224, 224),), Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, capture_output=True)


def megabytes(pid: int | str = "self", key: str = "VmHWM") -> float:
    """A line of a process's status; 0 where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status if line.startswith(key)), 0.0)


def watched(*command: str) -> dict[str, float]:
    """The peaks of a command: its own process, the largest of those below it, and all of them together."""
    peaks, begun = {"own": 0.0, "child": 0.0, "tree": 0.0}, time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            try:
                below = [child.pid for child in process.children(recursive=True)]
            except psutil.NoSuchProcess:
                break
            peaks["own"] = max(peaks["own"], megabytes(process.pid))
            peaks["child"] = max([peaks["child"], *map(megabytes, below)])
            peaks["tree"] = max(peaks["tree"], sum(megabytes(pid, "VmRSS") for pid in (process.pid, *below)))
            time.sleep(0.01)
        if process.wait():
            log.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{log.read().decode()[-2000:]}")
    return peaks | {"seconds": time.perf_counter() - begun}


def commands(model: Path, folder: Path, options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Every command in its order, each with what it reads from the one before."""
    chosen = ["--calibrator", options.calibrator]
    c, r, settings = str(folder / "c.onnx"), str(folder / "r.txt"), str(folder / "config.json")
    number, data = ["--batch-num", str(options.images)], ["--data", f"{folder / 'data.py'}:batches"]
    threads = ["--threads", str(options.threads)]
    yield "config", [str(model), "-o", settings, *chosen, *number]
    yield "quantize", [str(model), "-c", settings, "-o", c, "-r", r]
    yield "calibrate", [c, "-r", r, *data, *threads]
    yield "save", [c, "-r", r, "-o", str(folder / "saved" / "m")]
    yield "save", [c, "-r", r, "-o", str(folder / "saved" / "m"), *data]
    yield "all", [str(model), "-o", str(folder / "all" / "m"), *chosen, *number, *data, *threads]


def fp32(file: str, count: str, threads: str) -> None:
    """Plain inference, one image at a time."""
    from qbench.quant.onnx import onnxruntime_session

    session = onnxruntime_session.open_session(Path(file), threads=int(threads))
    shape = [size if isinstance(size, int) else 1 for size in session.get_inputs()[0].shape]
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    for number in range(int(count)):
        session.run(None, {session.get_inputs()[0].name: x * np.float32(number % 8)})


class Worker:
    """What a worker of ``qbench run`` does for a static build, and plain inference on the same batches."""

    def __init__(self, file: Path, count: int, calibrator: str) -> None:
        from qbench.quant import recipe
        from qbench.quant.artifacts import onnx_file
        from qbench.quant.onnx import static

        self.file, self.recipe = file, recipe.Recipe(name="static", calibrator=calibrator)
        shape = [size.dim_value for size in _input(file).type.tensor_type.shape.dim][1:]
        image = np.random.default_rng(0).standard_normal((1, *shape), dtype=np.float32)
        self.examples = (np.broadcast_to(image, (count, *shape)),)  # takes no memory of its own
        self.batches = onnx_file.Batches(file, self.examples, static._BATCH)

    def fp32(self) -> dict[str, float]:
        """Peak, in MB."""
        from qbench.quant.onnx import onnxruntime_session

        session = onnxruntime_session.open_session(self.file, threads=1)
        for feed in self.batches:
            session.run(None, feed)
        return {"whole": megabytes()}

    def one_by_one(self) -> dict[str, float]:
        """Peak of single examples, in MB."""
        fp32(str(self.file), str(len(self.examples[0])), "1")
        return {"whole": megabytes()}

    def build(self) -> dict[str, float]:
        """Peaks of the loop and of everything, in MB."""
        from qbench.quant.onnx import static

        peaks: dict[str, float] = {}

        def told(what: str, share: float) -> None:
            if share <= 0.3:
                return
            if "before" not in peaks:
                peaks["before"] = megabytes()
                Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            peaks["loop"] = megabytes()

        static.choose_scales(self.file, self.recipe, self.examples, told)
        return {"loop": peaks["loop"], "whole": max(peaks["before"], megabytes())}


def _input(file: Path) -> Any:
    import onnx

    return onnx.load(str(file)).graph.input[0]


def work(what: str, *settings: Any) -> dict[str, float]:
    """What a method of ``Worker`` measures, in a new worker."""
    import onnx_memory  # under the name by which the worker finds it, not as __main__

    from qbench.process import child_process as process

    with process.Worker(onnx_memory.Worker, *settings, limits=process.Limits(seconds=1800), name=what) as worker:
        worker.ready()
        peaks: dict[str, float] = worker.ask(what)
    return peaks


def tensors(record: Path) -> int:
    """How many tensors were calibrated: entries of the record with a scale of their activation."""
    from qbench.quant.onnx.formats import scale_record as record_file

    return sum(scales.scale_d is not None for scales in record_file.read(record).values())


def show(name: str, peaks: dict[str, float], limit: float | None, judged: str) -> None:
    """One line; ``judged``: the peak that is held against the limit."""
    line = f"{name:34s} " + "  ".join(f"{key} {value:5.0f}" for key, value in peaks.items())
    if limit is not None:
        line += f"   {judged}: {'within' if peaks[judged] <= limit else 'ABOVE'} {limit:.0f} MB"
    print(line, flush=True)


def main() -> None:
    """Prints every figure as it is known, in MB and seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, help="an fp32 file with one input of images; left out: Lite0 of the zoo")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--calibrator", default="minmax")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or folder / "lite0.onnx"
        if options.model is None:
            export(model)
        shape = tuple(size.dim_value for size in _input(model).type.tensor_type.shape.dim)[1:]
        (folder / "data.py").write_text(DATA.format(shape=shape, count=options.images))
        plain = (sys.executable, __file__, "--fp32", str(model), str(options.images), str(options.threads))
        base = watched(*plain)
        show("fp32 inference", base, None, "own")
        allowed, limit = 0.0, None
        for command, given in commands(model, folder, options):
            peaks = watched(sys.executable, "-c", COMMAND, "onnx", command, *given)
            if command == "calibrate":
                allowed = tensors(folder / "r.txt") / 4
            limit = 1.3 * base["own"] + allowed if command in ("calibrate", "save", "all") else None
            show(f"qbench onnx {command}{' --data' if '--data' in given else ''}", peaks, limit, "own")
        show("fp32 inference again", watched(*plain), None, "own")
        for kind in ("one_by_one", "fp32", "build"):
            peaks = work(kind, model, min(options.images, 64), options.calibrator)
            worker_limit = 1.3 * base["whole"] + allowed if kind == "build" else None
            show(f"worker of qbench run: {kind}", peaks, worker_limit, "loop")
            base = base if kind == "build" else peaks
    print(json.dumps({"tensors": int(allowed * 4)}))


if __name__ == "__main__":
    fp32(*sys.argv[2:]) if sys.argv[1:2] == ["--fp32"] else main()
