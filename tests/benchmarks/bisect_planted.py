"""How often ``qbench bisect`` names the release in which a fault was planted.

    python tests/benchmarks/bisect_planted.py FAULT FOLDER [COUNT [FIRST]]

Each bisection has 13 made-up releases of onnxruntime of its own: wheels that hand everything to the real one, which is
installed here. From one drawn at random on, FAULT is planted: ``slower`` waits 5 % longer in every call, ``flips``
turns the answer of 2 % of the examples, ``fails`` loads no model; ``same`` plants none. FOLDER keeps wheels,
environments (megabytes) and looks, and the line of each bisection in ``FAULT.txt``. Numbers FIRST to FIRST + COUNT - 1
(1 to 20 by default). A bisection takes 0.5 to 3 minutes. No network is used.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))

from made_wheels import make_wheel

RELEASES = 13
CASE = "digits-cnn/static/onnxruntime/t1/b1"
SUITE = """\
suite: planted
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [static], backends: [onnxruntime]}
"""
ON = {"slower": "latency", "flips": "accuracy", "fails": "failure", "same": "latency"}
WRAPPER = '''\
"""Hands everything to the real onnxruntime, but for one fault."""

import os, sys, time, zlib

_home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_real = next(
    os.path.join(entry, "onnxruntime")
    for entry in sys.path
    if os.path.abspath(entry) != _home and os.path.isfile(os.path.join(entry, "onnxruntime", "__init__.py"))
)
__path__ = [_real]
with open(os.path.join(_real, "__init__.py"), encoding="utf-8") as _file:
    exec(compile(_file.read(), _file.name, "exec"))
__version__ = {version!r}
FAULT = {fault!r}
_open, _run = InferenceSession.__init__, InferenceSession.run


def _opens(self, *arguments, **named):
    if FAULT == "fails":
        raise RuntimeError("planted: this release cannot load the model")
    _open(self, *arguments, **named)


def _runs(self, names, feed, *more):
    started = time.perf_counter()
    outputs = _run(self, names, feed, *more)
    until = time.perf_counter()
    until += 0.05 * (until - started) if FAULT == "slower" else 0.0
    if FAULT == "flips":
        rows = next(iter(feed.values()))
        for place, row in enumerate(rows):
            if zlib.crc32(row.tobytes()) % 50 == 0:
                outputs[0][place] = outputs[0][place][::-1]
    while time.perf_counter() < until:
        pass
    return outputs


InferenceSession.__init__, InferenceSession.run = _opens, _runs
'''


def plant(folder: Path, number: int, fault: str) -> tuple[list[str], str | None]:
    """The releases of one bisection, whose wheels lie in the folder then, and the first with the fault."""
    versions = [f"2.{100 * number + place}.0" for place in range(RELEASES)]
    first = random.Random(f"{fault}/{number}").randrange(1, RELEASES)
    for place, version in enumerate(versions):
        code = WRAPPER.format(version=version, fault=fault if place >= first else "")
        make_wheel(folder, "onnxruntime", version, {"onnxruntime/__init__.py": code})
    return versions, None if fault == "same" else versions[first]


def bisect(folder: Path, number: int, fault: str) -> str:
    """One bisection: a line that begins with ``right``, ``wrong``, or what the answer was."""
    wheels = folder / f"wheels-{fault}-{number}"
    versions, planted = plant(wheels, number, fault)
    suite = folder / "planted.yaml"
    suite.write_text(SUITE)
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        environment.pop(name, None)
    # Environments lie in the cache by version: those of one fault must not be taken for another's.
    environment["QBENCH_CACHE"] = str(folder / f"cache-{fault}")
    ends = ["--good", f"onnxruntime=={versions[0]}", "--bad", f"onnxruntime=={versions[-1]}"]
    out = folder / f"looks-{fault}-{number}"
    command = [sys.executable, "-m", "qbench", "bisect", str(suite), "--case", CASE, *ends, "--on", ON[fault]]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--out", str(out), "--json", "-q"], env=environment, capture_output=True, text=True, check=False
    )
    took = time.monotonic() - started
    if not done.stdout:
        return f"error {number}: {done.stderr.strip()[-300:]}"
    said = json.loads(done.stdout)
    right = said["named"] == planted
    word = ("right" if right else "wrong") if said["answer"] == "named" or planted is None else said["answer"]
    return f"{word} {number}: planted {planted}, {said['answer']}, {took:.0f} s: {said['text']}"


def main(fault: str, folder: Path, count: int, first: int) -> None:
    """Prints and keeps a line for each bisection."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        line = bisect(folder.resolve(), number, fault)
        print(line, flush=True)
        with (folder / f"{fault}.txt").open("a") as kept:
            kept.write(f"{line}\n")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[3:]]
    main(sys.argv[1], Path(sys.argv[2]), *[*numbers, *(20, 1)[len(numbers) :]])
