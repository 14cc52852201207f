"""Where the time of `qbench run` goes, over all its processes.

    python tests/benchmarks/run_profile.py [--trace FILE] [--least SECONDS] SUITE [OPTIONS OF qbench run ...]

A run as ever, with an empty cache if ``QBENCH_CACHE`` names an empty folder. Every process is asked where it is after
each 5 ms of processor time that it has spent (all its threads together); what is printed is seconds of processor time
by stage and by function of qbench, imports apart. Beside others that work on the machine, wall time grows and these
hardly do. ``--trace`` writes all of it for chrome://tracing or https://ui.perfetto.dev.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parent))

from sampled_process import FOLDER, stop_watching, watch_process

STAGES = {
    "prepare": "prepare",
    "build_variants": "build",
    "evaluate": "evaluate",
    "compare_runtimes": "runtimes",
    "measure": "measure",
    "build_report": "report",
}
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A process at one moment: the processor time since its last sample, and what it was at."""

    process: int
    name: str
    at: float
    cpu_seconds: float
    doing: str


def read_samples(folder: Path) -> list[Sample]:
    """Those of every process."""
    samples = []
    for file in sorted(folder.iterdir()):
        for line in file.read_text().splitlines():
            name, at, cpu_seconds, doing = json.loads(line)
            samples.append(Sample(process=int(file.stem), name=name, at=at, cpu_seconds=cpu_seconds, doing=doing))
    return samples


class StageWatch:
    """When each stage began, from the stack of the main thread."""

    def __init__(self) -> None:
        self.began: list[tuple[float, str]] = [(time.monotonic(), "start")]
        self._main = threading.get_ident()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            stage = find_stage(sys._current_frames().get(self._main))
            if stage not in (None, self.began[-1][1]):
                self.began.append((time.monotonic(), str(stage)))
            time.sleep(_LOOK_SECONDS)

    def name(self, at: float) -> str:
        """The stage at a moment."""
        return [stage for begin, stage in self.began if begin <= at or begin == self.began[0][0]][-1]

    def spans(self, end: float) -> Iterator[tuple[str, float, float]]:
        """Each stage with its begin and its end."""
        ends = [begin for begin, _ in self.began[1:]] + [end]
        for (begin, stage), its_end in zip(self.began, ends, strict=True):
            yield stage, begin, its_end


def find_stage(frame: FrameType | None) -> str | None:
    """The outermost stage in a stack; None outside of any."""
    outermost = None
    while frame is not None:
        stage = STAGES.get(frame.f_code.co_name)
        if stage is not None and "/qbench/" in frame.f_code.co_filename:
            outermost = stage
        frame = frame.f_back
    return outermost


def print_table(samples: list[Sample], watch: StageWatch, end: float, least: float) -> None:
    """Each stage with its wall and processor seconds, below it what took at least so much of them."""
    wall: dict[str, float] = defaultdict(float)
    for stage, begin, its_end in watch.spans(end):
        wall[stage] += its_end - begin
    spent: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    pids: dict[tuple[str, str], set[int]] = defaultdict(set)
    for sample in samples:
        stage = watch.name(sample.at)
        spent[stage][sample.name, sample.doing] += sample.cpu_seconds
        pids[stage, sample.name].add(sample.process)
    print(f"{'':<60} {'processes':>9} {'cpu s':>7} {'wall s':>7}")
    for stage, seconds in wall.items():
        rows = spent[stage]
        print(f"{stage:<60} {'':>9} {sum(rows.values()):>7.2f} {seconds:>7.2f}")
        names: dict[str, float] = defaultdict(float)
        for (name, _), cpu_seconds in rows.items():
            names[name] += cpu_seconds
        for name, of_name in sorted(names.items(), key=lambda item: -item[1]):
            if of_name < least:
                continue
            print(f"  {name[:58]:<58} {len(pids[stage, name]):>9} {of_name:>7.2f}")
            of_doing = [(cpu, doing) for (its_name, doing), cpu in rows.items() if its_name == name]
            for cpu, doing in sorted(of_doing, reverse=True):
                if cpu >= least:
                    print(f"    {doing[:66]:<66} {'':>1} {cpu:>7.2f}")
    print(f"{'all':<60} {'':>9} {sum(s.cpu_seconds for s in samples):>7.2f} {sum(wall.values()):>7.2f}")


def write_trace(file: Path, samples: list[Sample], watch: StageWatch, end: float) -> None:
    """The samples as a trace of Chrome's: one line a process; neighbours that do the same are one event."""
    events: list[dict[str, object]] = []
    for stage, begin, its_end in watch.spans(end):
        events.append({"name": stage, "ph": "X", "pid": 0, "tid": 0, "ts": begin * 1e6, "dur": (its_end - begin) * 1e6})
    last: dict[int, dict[str, object]] = {}
    for sample in samples:
        event = last.get(sample.process)
        begin = sample.at - sample.cpu_seconds
        if event is not None and event["name"] == sample.doing:
            event["dur"] = sample.at * 1e6 - float(str(event["ts"]))
            continue
        if event is None:
            names = {"name": "thread_name", "ph": "M", "pid": 0, "tid": sample.process, "args": {"name": sample.name}}
            events.append(names)
        event = {"name": sample.doing, "ph": "X", "pid": 0, "tid": sample.process}
        event |= {"ts": begin * 1e6, "dur": sample.cpu_seconds * 1e6}
        last[sample.process] = event
        events.append(event)
    file.write_text(json.dumps({"traceEvents": events}))


def preload_sampler() -> None:
    """Has the server of children import the sampler before all else, so that it watches whatever is forked there."""
    set_preload = multiprocessing.set_forkserver_preload
    multiprocessing.set_forkserver_preload = lambda names: set_preload(["sampled_process", *names])  # type: ignore[assignment]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--least", type=float, default=0.2, help="processor seconds that a line must have")
    asked, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        preload_sampler()
        watch = StageWatch()
        watch_process()
        from qbench.cli.main import main as run_qbench

        sys.argv = ["qbench", "run", *rest]
        code = 0
        try:
            run_qbench()
        except SystemExit as ended:
            code = int(ended.code or 0)
        stop_watching()
        end = time.monotonic()
        samples = read_samples(Path(folder))
        print_table(samples, watch, end, asked.least)
        if asked.trace is not None:
            write_trace(asked.trace, samples, watch, end)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
