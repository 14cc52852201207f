"""Hostile ONNX files through ``qbench onnx`` and a suite's ``{onnx: …}``: each is done, or refused with one message.

    python tests/fuzz/onnx_models.py --count 1000
    python tests/fuzz/onnx_models.py --seconds 3600 --seed 7 --keep finds/
    python tests/fuzz/onnx_models.py --only 4711            # one of them again, with its traceback

Each file goes through config, quantize, calibrate and save (every third one only from calibrate on: its calibration
model is the hostile one), in a warm worker with a limit of memory; the parent ends a worker that takes too long. A find
is an exception that is no ``QbenchError``, a message that does not name the file, a dead worker, or one that hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
MEMORY = 6 * 2**30  # bytes of address space that a worker has
SECONDS = 60  # that one file may take
THIRD = 3  # of the files are hostile from the calibration model on


def main() -> int:
    """Prints each find once and a count of all; 1 where there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder that gets the files of finds")
    parser.add_argument("--only", type=int, help="one seed, with all that is told of it")
    options = parser.parse_args()
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(run_seed(options.only, Path(folder)), indent=2))
        return 0
    end = time.monotonic() + options.seconds if options.seconds else None
    count = options.count or (None if end else 1000)
    outcomes, finds, number = Counter(), Counter(), 0
    worker = Worker()
    while (count is None or number < count) and (end is None or time.monotonic() < end):
        seed = options.seed + number
        number += 1
        told = worker.ask(seed)
        outcomes[told["outcome"]] += 1
        if told["outcome"] in ("done", "refused"):
            continue
        key = f"{told['outcome']}: {told.get('place', '')} {told.get('words', '')[:80]}"
        finds[key] += 1
        if finds[key] <= 2:
            print(f"--only {seed}: {key} ({', '.join(told.get('done', ()))})", flush=True)
            if options.keep:
                keep(seed, options.keep)
    worker.end()
    print(f"{number} files: " + ", ".join(f"{what} {many}" for what, many in outcomes.most_common()))
    return 1 if finds else 0


def keep(seed: int, folder: Path) -> None:
    from onnx_mutations import hostile

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        file, _ = hostile(seed, Path(place))
        shutil.copy(file, folder / f"{seed}.onnx")


class Worker:
    """A process that is asked for one seed after the other; a new one where it died or hung."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, seed: int) -> dict:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        if not ready:
            self.process.kill()
        code = self.process.wait()
        self.process = None
        return {"outcome": "died" if ready else "hung", "words": f"exit code {code}"}

    def end(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(10)


def work() -> None:
    """The worker: seeds in, one line of JSON for each out. What libraries print goes elsewhere."""
    sys.path.insert(0, str(HERE))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import onnx_mutations  # noqa: F401  # reads what takes long before the limit of memory
    import onnxruntime  # noqa: F401

    from qbench.quant.onnx import onnxruntime_session
    from qbench.quant.onnx.graph import equivalence

    equivalence.SECONDS = onnxruntime_session.CALL_SECONDS = 5  # of which a Loop without end takes all
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            told = run_seed(int(line), Path(folder))
        print(json.dumps(told), file=answers, flush=True)


def run_seed(seed: int, folder: Path) -> dict:
    """What happened to the file of a seed."""
    sys.path.insert(0, str(HERE))
    from onnx_mutations import SOURCES, hostile, mutated

    from qbench.errors import QbenchError

    begun, done = time.monotonic(), ()
    inner = folder / "inner"
    inner.mkdir()
    (folder / "outside.bin").write_bytes(bytes(4096))
    chance = random.Random(seed)
    late = chance.randrange(THIRD) == 0
    try:
        if late:
            named = inner / "calibration.onnx"
            clean = inner / "clean.onnx"
            clean.write_bytes(chance.choice(SOURCES)().SerializeToString())
            first_steps(clean, inner)
            import onnx

            content, done = mutated(onnx.load(str(named)), chance)
            named.write_bytes(content)
        else:
            named, done = hostile(seed, inner)
            source(named)
            first_steps(named, inner)
        last_steps(inner)
    except QbenchError as error:
        words = str(error)
        about_file = str(inner) in words or "calibration data" in words or "no tensor" in words
        outcome = "refused" if about_file else "no file named"
        return {"outcome": outcome, "words": words, "done": done, "seconds": time.monotonic() - begun}
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/qbench/" in frame.filename]
        place = " < ".join(f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames[::-1][:3])
        words = f"{type(error).__name__}: {error}"
        return {"outcome": "traceback", "place": place, "words": words, "done": done, "trace": traceback.format_exc()}
    return {"outcome": "done", "done": done, "seconds": time.monotonic() - begun}


def source(file: Path) -> None:
    """What a suite does with a file before it is built."""
    from qbench.models import onnx as models
    from qbench.models import weights
    from qbench.models.base import ModelReference
    from qbench.quant.artifacts import onnx_file

    reference = ModelReference(name="hostile", source="onnx", path=file)
    models.load(reference)
    weights._external_files(file)
    onnx_file.copy(file, file.with_name("copy.onnx"))
    for read in (onnx_file.input_names, onnx_file.input_types, onnx_file.fixed_batch):
        read(file)


def first_steps(file: Path, folder: Path) -> None:
    """config and quantize."""
    import qbench.onnx as steps
    from qbench.quant.onnx.formats.rules import ActivationRule, Rule

    rules = steps.Rules(batch_num=2, common=Rule(activation=ActivationRule(algorithm="minmax")))
    steps.config(file, folder / "config.json", rules=rules)
    steps.quantize(file, folder / "config.json", folder / "calibration.onnx", folder / "record.txt")


def last_steps(folder: Path) -> None:
    """calibrate and save, on random inputs."""
    import qbench.onnx as steps
    from qbench.errors import DataError
    from qbench.onnx.calibration_data import inputs
    from qbench.quant.onnx.formats import calibration_file
    from qbench.quant.onnx.graph import equivalence

    model, record = folder / "calibration.onnx", folder / "record.txt"
    graph = calibration_file.read(model).graph()
    inputs(graph)
    feed = next(iter(equivalence.random_inputs(graph)), None)
    if feed is None:
        raise DataError("calibration data: none that is random")
    steps.calibrate(model, [feed, feed], record, threads=1)
    steps.save(model, record, folder / "out", targets=steps.TARGETS)


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        work()
    else:
        sys.path.insert(0, str(HERE))
        sys.exit(main())
