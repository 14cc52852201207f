"""What `qbench check` says first of files rebuilt from public threads, beside what the threads found.

    python tests/benchmarks/check_threads.py [FOLDER]

Prints a line for each: whether the cause of the thread came first, and which faults were claimed that are none. The
files are made with the tools of which the threads tell (tests/fixtures/thread_files.py). Takes about five minutes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

from thread_files import THREADS, ask


def main() -> None:
    """Makes, checks, prints and counts."""
    right, wrong = 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        for thread in THREADS:
            folder = root / thread.name
            folder.mkdir(parents=True, exist_ok=True)
            answer = ask(thread, folder / "model.onnx")
            claimed = answer.list_wrong(thread)
            right, wrong = right + answer.is_right(thread), wrong + bool(claimed)
            mark = "right" if answer.is_right(thread) else "OTHER"
            print(
                f"{mark}  {thread.name}: {answer.first}: {answer.text[:110]}{f'  WRONG: {claimed}' if claimed else ''}"
            )
    print(f"{right} of {len(THREADS)} right first, {wrong} with a fault that is none")


if __name__ == "__main__":
    main()
