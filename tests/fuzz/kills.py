"""kill -9 at random moments: no finished record is lost, no process lives on, and no file stays behind.

    python tests/fuzz/kills.py [--kills 200] [--seed 0] [--backends fake] [--keep DIR]

A run of a small suite is started, killed after a random share of the time that a whole run takes, and resumed, until it
ends by itself; then the next one begins, every second one with an empty cache. After each kill this is asked:

- every record that was whole in the file before is there, byte by byte, and all but the last line can be read;
- within five seconds no process is left that qbench or its children started (all carry a mark in their environment);
- the temporary folder, TMPDIR, is empty by then;
- `latest`, if it is there, leads to a run with a record;
- no child has written a traceback.

After each run that ends by itself: exit code 0, one ok record for every case, nothing half written in its folder, and
no entry in the making, nor anything to go on from, in the cache. The exit code is 1 where anything was found. The
example networks do nothing (`fake`: 8 cases, 4 to 10 s a run on an idle core); `--backends torch,onednn` is real.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

GRACE_SECONDS = 5.0
LONGEST_SECONDS = 600.0
MARK = "QBENCH_KILLS"
SUITE = """
suite: kills
models: [{{name: mine, source: {{python: "model.py:network"}}}}]
data: {{dataset: {{npz: data.npz}}, calibrate: {{samples: 16}}}}
matrix: {{modes: {modes}, backends: [{backends}], batch_sizes: [1, 2]}}
quantize: {{qat: {{epochs: 1}}}}
measure: {{max_seconds: 0.2, precision: 20%, processes: 2, cold_starts: 1}}
"""
MODEL = """
import torch

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
"""


@dataclass
class Case:
    """One series of kills: its folder, what was found, and how long a whole run takes."""

    folder: Path
    random: random.Random
    finds: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    whole_seconds: float = 0.0

    @property
    def temporary(self) -> Path:
        """What the runs have as TMPDIR."""
        return self.folder / "tmp"

    @property
    def reports(self) -> Path:
        """Where the runs of the suite lie."""
        return self.folder / "reports" / "kills"

    def require(self, holds: bool, what: str) -> None:
        """Keeps what does not hold."""
        if not holds:
            self.finds.append(what)
            print(f"FOUND after {self.counts['kills']} kills: {what}", flush=True)


def main() -> int:
    """Kills as often as asked; 1 where anything was found."""
    options = _options()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="qbench-kills-"))
    case = Case(folder=folder, random=random.Random(options.seed))
    _prepare(case, options.backends)
    case.whole_seconds = _undisturbed(case)
    print(f"a whole run takes {case.whole_seconds:.1f} s", flush=True)
    while case.counts["kills"] < options.kills:
        _series(case, options.kills)
        print(f"{dict(case.counts)}, {len(case.finds)} finds", flush=True)
        shutil.rmtree(case.reports, ignore_errors=True)
        if case.random.random() < 0.5:
            shutil.rmtree(folder / "cache", ignore_errors=True)
    print(
        f"{case.counts['kills']} kills (seed {options.seed}), {case.counts['runs']} runs ended by themselves, "
        f"{case.counts['records']} records finished before a kill, {len(case.finds)} finds"
    )
    if not options.keep and not case.finds:
        shutil.rmtree(folder)
    return 1 if case.finds else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", default="fake")
    parser.add_argument("--keep", help="work in this folder and leave it there")
    return parser.parse_args()


def _prepare(case: Case, backends: str) -> None:
    case.temporary.mkdir(parents=True)
    draw = np.random.default_rng(0)
    arrays = {
        f"{part}_{name}": draw.random((count, 1, 8, 8), dtype=np.float32) if name == "inputs" else np.arange(count) % 10
        for part, count in (("train", 32), ("test", 40))
        for name in ("inputs", "labels")
    }
    np.savez(case.folder / "data.npz", **arrays)
    (case.folder / "model.py").write_text(MODEL)
    modes = "[fp32, dynamic, static, qat]" if backends == "fake" else "[fp32, static]"
    (case.folder / "kills.yaml").write_text(SUITE.format(backends=backends, modes=modes))


def _start(case: Case, resume: Path | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "qbench", "run", "kills.yaml", "--quiet"]
    command += [] if resume is None else ["--resume", str(resume)]
    environment = {
        **os.environ,
        MARK: case.folder.name,
        "TMPDIR": str(case.temporary),
        "QBENCH_CACHE": str(case.folder / "cache"),
    }
    with (case.folder / "output.txt").open("wb") as output:
        return subprocess.Popen(command, cwd=case.folder, env=environment, stdout=output, stderr=subprocess.STDOUT)


def _undisturbed(case: Case) -> float:
    """The seconds of a run that nobody kills, with a warm cache: most kills fall into its stages then."""
    for _ in range(2):
        started = time.monotonic()
        code = _start(case, None).wait(LONGEST_SECONDS)
        case.require(code == 0, f"a run that nobody kills ends with {code}: {_output(case)}")
    return time.monotonic() - started


def _series(case: Case, most: int) -> None:
    """One run, killed and resumed until it ends by itself."""
    before: dict[str, list[bytes]] = {}
    while case.counts["kills"] < most:
        running = _start(case, _to_resume(case))
        try:
            code = running.wait(case.random.uniform(0.0, 1.1 * case.whole_seconds))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            case.counts["kills"] += 1
            _look_after_kill(case, before)
            before = _lines(case)
        else:
            case.counts["runs"] += 1
            _look_after_end(case, code)
            return


def _to_resume(case: Case) -> Path | None:
    runs = sorted(path.parent for path in case.reports.glob("*/run.json") if path.parent.name != "latest")
    return runs[-1] if runs else None


def _lines(case: Case) -> dict[str, list[bytes]]:
    """The whole lines of every run's records."""
    return {
        path.parent.name: path.read_bytes().split(b"\n")[:-1]
        for path in case.reports.glob("*/records.jsonl")
        if path.parent.name != "latest"
    }


def _look_after_kill(case: Case, before: dict[str, list[bytes]]) -> None:
    now = _lines(case)
    for run, lines in before.items():
        case.require(now.get(run, [])[: len(lines)] == lines, f"{run}: records are lost")
    for run, lines in now.items():
        broken = [line for line in lines if not _is_json(line)]
        case.require(not broken, f"{run}: {len(broken)} lines are no records")
        case.counts["records"] += len(lines) - len(before.get(run, []))
    folders = [path for path in case.reports.glob("2*") if not (path / "run.json").is_file()]
    case.require(not folders, f"{len(folders)} folders without run.json")
    latest = case.reports / "latest"
    shown = not latest.is_symlink() or (latest / "records.jsonl").is_file()
    case.require(shown, "latest leads to a run without a record")
    _look_around(case)
    case.require("Traceback" not in _output(case), f"a traceback of a child: {_output(case)}")


def _look_after_end(case: Case, code: int) -> None:
    case.require(code == 0, f"a resumed run ends with {code}: {_output(case)}")
    for run, lines in _lines(case).items():
        last = {record["case"]["id"]: record["status"] for record in map(json.loads, lines)}
        planned = json.loads((case.reports / run / "run.json").read_text())["plan"]["cases"]
        case.require(all(last.get(case_id) == "ok" for case_id in planned), f"{run}: {last} of {planned}")
        twice = [case_id for case_id, n in Counter(json.loads(line)["case"]["id"] for line in lines).items() if n > 1]
        case.require(not twice, f"{run}: recorded twice: {twice}")
        half = [*(case.reports / run).rglob(".*"), *(case.reports / run).glob("samples/partial-*")]
        case.require(not half, f"{run}: half written: {half}")
    cache = case.folder / "cache"
    half = [*cache.glob("*/.*"), *cache.glob("unfinished/*"), *cache.glob("locks/user-*")]
    case.require(not half, f"in the cache: {half}")
    _look_around(case)


def _look_around(case: Case) -> None:
    case.require(_soon(lambda: not list(_processes(case))), f"processes live on: {list(_processes(case))}")
    left = [str(path) for path in case.temporary.rglob("*")]
    case.require(_soon(lambda: not any(case.temporary.iterdir())), f"files in the temporary folder: {left}")


def _processes(case: Case) -> Iterator[str]:
    """The processes that this series has started, with what they are; one that has only to be waited for has ended."""
    setting = f"{MARK}={case.folder.name}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if setting in (folder / "environ").read_bytes().split(b"\0"):
                yield f"{folder.name} {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ')[:200]!r}"
        except OSError:
            continue


def _soon(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + GRACE_SECONDS
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _output(case: Case) -> str:
    return (case.folder / "output.txt").read_text(errors="replace")[-2000:]


if __name__ == "__main__":
    sys.exit(main())
