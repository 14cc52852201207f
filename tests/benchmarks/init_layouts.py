"""Whether the suite that `qbench init` writes runs at once, for models and data as users have them.

    python tests/benchmarks/init_layouts.py [--only 'npz*'] [--set matrix.backends=[onnxruntime]]

For each layout of tests/fixtures/user_layouts.py, in a folder of its own: ``qbench run MODEL --data DATA --quick``.
Prints the exit code, what the run decided, and how many of them end with 0. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from user_layouts import LAYOUTS


def main() -> None:
    """Makes, runs and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*")
    parser.add_argument("--set", action="append", default=[])
    chosen = parser.parse_args()
    names = [name for name in LAYOUTS if fnmatch.fnmatch(name, chosen.only)]
    ran = 0
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            code, line = run_layout(name, Path(temporary), chosen.set)
        ran += code == 0
        print(f"{code}  {name}: {line}", flush=True)
    print(f"{ran} of {len(names)} run at once")


def run_layout(name: str, place: Path, changes: list[str]) -> tuple[int, str]:
    """The exit code, and the line that says what came of it."""
    model, data = LAYOUTS[name](place)
    command = [sys.executable, "-m", "qbench", "run", model, "--quick", "--quiet"]
    command += ["--data", data] if data is not None else []
    command += [word for change in changes for word in ("--set", change)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("quick look", "failed"))]
    return done.returncode, " / ".join(lines) or (done.stderr.strip().splitlines() or ["nothing was said"])[-1]


if __name__ == "__main__":
    main()
