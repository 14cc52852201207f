"""How long a report takes, how much memory, and how large it is: by default 300 cases with 10 million timed calls.

    python tests/benchmarks/report_speed.py [--cases 300] [--calls 10000000] [--run FOLDER]

Prints seconds, peak resident set and bytes of the page. ``--run``: an existing run instead, whose folder is copied.
Targets on a quiet machine of 2 cores: 15 s, 1 GB and 4 MB for the default; 3 s for the quickstart's run.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
BUILD = "import sys, pathlib; from qbench.report import build; build.build_report(pathlib.Path(sys.argv[1]))"


def main() -> None:
    """Makes or copies a run, and builds its report in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--run", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        if chosen.run is not None:
            shutil.copytree(chosen.run, folder)
        else:
            make(folder, chosen.cases, chosen.calls)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", BUILD, str(folder)], check=True)
        seconds = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(
            f"{seconds:.1f} s ({used.ru_utime + used.ru_stime:.1f} s of CPU), {used.ru_maxrss / 1e6:.2f} GB, "
            f"report.html {(folder / 'report.html').stat().st_size / 1e6:.2f} MB"
        )


def make(folder: Path, cases: int, calls: int) -> None:
    """A run of about so many cases: 4 settings, 3 modes on 7 backends, with as many recipes as it takes."""
    from large_run import Shape, write_large_run

    recipes = ["default", *(f"recipe-{i}" for i in range(1, max(1, round((cases / 4 - 2) / 21))))]
    shape = Shape(models=("digits-cnn", "resnet20"), threads=(1, 2), recipes=recipes, calls=calls)
    write_large_run(folder, shape)


if __name__ == "__main__":
    main()
