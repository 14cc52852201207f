"""How often ``qbench upgrade`` calls an upgrade that changes nothing a regression.

    python tests/benchmarks/upgrade_aa.py FOLDER [COUNT [FIRST]]

Both sides are made-up releases of onnxruntime that hand everything to the real one, which is installed here (as in
``bisect_planted.py``): the same code under two version numbers, so that everything is really done: two environments,
the old files under the new release, files built anew, and all three arms timed in one session. The cases are the
quickstart's of digits-cnn on ONNX Runtime, judged by the quickstart's gate. Upgrades FIRST to FIRST + COUNT - 1 (1 to
100 by default); the first makes the old side's run, the others start from that. FOLDER keeps environments, runs and, in
``aa.txt``, a line of each upgrade: its exit code, of all verdicts how many there were of each outcome, the seconds, the
first line. What is in there already is not done again. Printed at the end: how many there were of each exit code, and
an upper limit of 95 % for the share of 1, "do not" (Clopper and Pearson). Half a minute to a minute each. No network is
used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))
sys.path.insert(0, str(Path(__file__).parent))

from bisect_planted import WRAPPER
from made_wheels import make_wheel
from scipy import stats

OLD, NEW = "2.1.0", "2.2.0"
SUITE = """\
suite: aa
models: [digits-cnn]
data:
  dataset: digits
  calibrate: {split: train, samples: 256, seed: 0}
matrix: {modes: [fp32, dynamic, static], backends: [onnxruntime]}
measure: {precision: 3%, max_seconds: 0.8, cold_starts: 3}
gate:
  latency: {max_regression: 5%}
  accuracy: {metric: top1, margin: 2.0}
"""


def plant(folder: Path) -> None:
    """Both releases, and the suite."""
    for version in (OLD, NEW):
        code = WRAPPER.format(version=version, fault="")
        make_wheel(folder / "wheels", "onnxruntime", version, {"onnxruntime/__init__.py": code})
    (folder / "aa.yaml").write_text(SUITE)


def upgrade(folder: Path) -> dict[str, Any]:
    """What one upgrade said: ``exit_code``, ``outcomes`` by name, ``seconds``, ``sentence``."""
    variables = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    variables |= {"PIP_FIND_LINKS": str(folder / "wheels"), "QBENCH_CACHE": str(folder / "cache")}
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        variables.pop(name, None)
    kept = folder / "old.txt"
    named = kept.read_text() if kept.exists() else str(folder / "aa.yaml")
    command = [sys.executable, "-m", "qbench", "upgrade", named, "--from", f"onnxruntime=={OLD}"]
    command += ["--to", f"onnxruntime=={NEW}", "--out", str(folder / "runs"), "--json", "-q"]
    started = time.monotonic()
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if not done.stdout:
        error = " ".join(done.stderr.split())[-300:]
        return {"exit_code": done.returncode, "outcomes": {}, "seconds": seconds, "sentence": error}
    said = json.loads(done.stdout)
    if not kept.exists():
        kept.write_text(str(min((folder / "runs/aa").glob("2*"))))
    verdicts = [verdict for gate in said["gates"].values() for verdict in gate["verdicts"]]
    outcomes = Counter(verdict["outcome"] for verdict in verdicts)
    return {
        "exit_code": said["exit_code"],
        "outcomes": dict(sorted(outcomes.items())),
        "seconds": seconds,
        "sentence": said["sentence"],
    }


def read_lines(file: Path) -> dict[int, str]:
    """What is kept, by number."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {int(line.split()[0]): line for line in lines}


def describe(number: int, said: Mapping[str, Any]) -> str:
    """A line."""
    outcomes = " ".join(f"{count} {name}" for name, count in said["outcomes"].items())
    return f"{number} exit {said['exit_code']}: {outcomes}, {said['seconds']:.0f} s: {said['sentence']}"


def main(folder: Path, count: int, first: int) -> None:
    """Prints and keeps a line for each upgrade, then sums all up."""
    folder.mkdir(parents=True, exist_ok=True)
    plant(folder)
    for number in range(first, first + count):
        if number not in read_lines(folder / "aa.txt"):
            line = describe(number, upgrade(folder))
            print(line, flush=True)
            with (folder / "aa.txt").open("a") as kept:
                kept.write(f"{line}\n")
    codes = Counter(line.split()[2].rstrip(":") for line in read_lines(folder / "aa.txt").values())
    n, wrong = codes.total(), codes["1"]
    limit = float(stats.beta.ppf(0.975, wrong + 1, n - wrong)) if wrong < n else 1.0
    told = ", ".join(f"{codes[code]} with exit code {code}" for code in sorted(codes))
    print(f"{n} upgrades: {told}; at most {100 * limit:.1f} % say do not")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:]]
    main(Path(sys.argv[1]).resolve(), *[*numbers, *(100, 1)[len(numbers) :]])
