"""Mutated runs, records, stored arrays and baselines: what reads them ends in a result or in one message.

    python tests/fuzz/records.py --seconds 3600 --seed 0

Every example is read, reported in words, compared, written as a baseline, and gated against another; of one in twenty
the whole report with its plots is built.
"""

from __future__ import annotations

import io
import json
import random
import sys
from functools import cache
from pathlib import Path
from typing import Any

import mutate
import numpy as np
from harness import Files, Fuzzer, main

from qbench.compare import compare
from qbench.compare import text as compare_text
from qbench.compare.changes import find_changes
from qbench.decide import decision
from qbench.errors import QbenchError
from qbench.gating import gate, github, junit, markdown
from qbench.gating import text as gate_text
from qbench.gating.baseline import locate_artifacts, read_baseline, to_text, write_baseline
from qbench.progress.table import align
from qbench.record.locate import find_run
from qbench.record.stored_run import StoredRun, read_run
from qbench.report import build, case_table, comparison, flips, frame, ruling, run_warnings, summary, terminal
from qbench.running import text as run_text

DATA = Path(__file__).parents[1] / "data" / "records"
RUN, BASELINE = "run", "base"
TOKENS = tuple(
    token.encode()
    for token in (
        *("NaN", "Infinity", "-1", "0", "1e999", "null", "true", "{}", "[]", '""', "[" * 3000, "9" * 5000, "\\ud800"),
        *("\0", "\xff", "\u202e", "\n", ",", ":", '"', "{", "}", '"schema": 99', '"case": {', "\\u0000"),
    )
)
SAMPLES = "samples/x.npz"


@cache
def corpus() -> tuple[tuple[Any, tuple[Any, ...]], ...]:
    """The real runs of every schema: what run.json says, and the records."""
    return tuple(
        (
            json.loads((folder / "run.json").read_text(encoding="utf-8")),
            tuple(map(json.loads, (folder / "records.jsonl").read_text(encoding="utf-8").splitlines())),
        )
        for folder in sorted(path for path in DATA.iterdir() if (path / "run.json").is_file())
    )


def make(random: random.Random) -> Files:
    """A run with its arrays and a baseline, of which one part was changed by somebody else."""
    info, records = random.choice(corpus())
    chosen = list(random.sample(records, random.randint(1, min(6, len(records)))))
    chosen = [{**record, "samples": SAMPLES, "predictions": f"predictions/{i}.npz"} for i, record in enumerate(chosen)]
    # A baseline must have a line of each case that its run planned, or nothing is compared or gated.
    info = {**info, "plan": {**info["plan"], "cases": [record["case"]["id"] for record in chosen]}}
    files = {f"{RUN}/{name}": content for name, content in _arrays(random, len(chosen)).items()}
    target = random.choice((RUN, BASELINE))
    for place, names in ((RUN, ("run/run.json", "run/records.jsonl")), (BASELINE, ("base.run.json", "base.jsonl"))):
        told, lines = (info, chosen)
        if place == target and random.random() < 0.7:
            told = mutate.changed_tree(random, info) if random.random() < 0.3 else info
            change = random.choice((mutate.changed_tree, mutate.changed_numbers, mutate.changed_numbers))
            lines = [change(random, record) if random.random() < 0.5 else record for record in chosen]
        files[names[0]] = json.dumps(told).encode(errors="surrogatepass")
        files[names[1]] = b"".join(json.dumps(line).encode(errors="surrogatepass") + b"\n" for line in lines)
    if random.random() < 0.3:
        name = random.choice(sorted(files))
        files[name] = mutate.changed_bytes(random, files[name], TOKENS)
    return files


def _arrays(random: random.Random, count: int) -> Files:
    """Samples and predictions, in one of three of them with shapes, types or values that do not belong there."""
    draw = np.random.RandomState(random.randrange(2**32))
    labels = draw.randint(0, 3, 20)
    files = {}
    for number in range(count):
        held = {
            "outputs": draw.standard_normal((20, 3)),
            "labels": labels,
            "ids": np.array([f"e{i}" for i in range(20)]),
        }
        if random.random() < 0.3:
            held[random.choice(sorted(held))] = _odd(random, draw)
        files[f"predictions/{number}.npz"] = _npz(held)
    timed = {"calls_ns": draw.randint(1, 10**6, 200), "log_ratios": draw.standard_normal(9) * 0.01}
    if random.random() < 0.3:
        timed[random.choice(sorted(timed))] = _odd(random, draw)
    return files | {SAMPLES: _npz(timed)}


def _odd(random: random.Random, draw: np.random.RandomState) -> Any:
    shape = random.choice(((), (0,), (1,), (20,), (20, 0), (20, 1), (20, 3, 4), (3, 20), (19, 3), (2, 2, 2)))
    array = draw.standard_normal(shape) * random.choice((0.0, 1.0, 1e300))
    if random.random() < 0.3:
        array = np.full(shape, random.choice((np.nan, np.inf, -np.inf)))
    kinds: tuple[Any, ...] = (float, np.float16, bool, complex, "U4", "S3", "M8[s]")
    whole = np.nan_to_num(array, posinf=7, neginf=-7).clip(-9, 9)
    return random.choice((array, whole.astype(random.choice((np.int64, np.uint8, *kinds[2:])))))


def _npz(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def attempt(folder: Path) -> None:
    """All that is done with a stored run; one part that is refused does not keep the others from being tried."""
    refused: list[QbenchError] = []
    run: StoredRun | None = None
    for step in (_worded, _as_baseline, _compared, _gated):
        try:
            run = run or read_run(find_run(str(folder / RUN), folder))
            step(run, folder)
        except QbenchError as error:
            refused.append(error)
    if int.from_bytes((folder / RUN / SAMPLES).read_bytes()[-64:-60], "big") % 20 == 0:
        build.build_report(folder / RUN)
    if refused:
        raise refused[0]


def _worded(run: StoredRun, folder: Path) -> None:
    judged = build.judge(run)
    decided = decision.decide(judged)
    changes = flips.of_run(run)
    build.csv_text(frame.cases_frame(run, judged, decided))
    build.csv_text(flips.flips_frame(changes))
    build.csv_text(flips.classes_frame(changes))
    rulings = ruling.rule(judged, decided)
    summary.summary(run, judged, decided, rulings, changes)
    for width, wide in ((80, False), (None, False), (None, True)):
        terminal.draw(judged, rulings, width=width, wide=wide)
    case_table.list_details(judged)
    run_text.problems(run.records)
    run_warnings.warnings(run, judged, changes)
    for record in run.records:
        run.samples(record)
        run.layer_numbers(record)


def _as_baseline(run: StoredRun, folder: Path) -> None:
    """Nothing is written but where baselines are asked for, whatever names the run holds."""
    target = folder / "of" / "the" / "baselines"
    before = {path for path in folder.rglob("*") if not path.is_relative_to(target)}
    try:
        file = write_baseline(folder / RUN, target, allow_failed=True)
        read_baseline(file)
        to_text(locate_artifacts(file, keep=True))
    finally:
        after = {path for path in folder.rglob("*") if not path.is_relative_to(target)}
        assert after - before <= {*target.parents}, f"written elsewhere: {sorted(after - before)}"


def _compared(run: StoredRun, folder: Path) -> None:
    base = read_baseline(folder / "base.jsonl")
    for old, new in ((base, run), (run, base)):
        deltas = compare.compare(old.records, new.records)
        align(comparison.change_table(find_changes(deltas, new.info.metric), new.info.metric))
        compare_text.as_json("a", "b", deltas, incomparable=None)


def _gated(run: StoredRun, folder: Path) -> None:
    gated = gate.gate_run(folder / RUN, folder / "base.jsonl")
    for words in (gate_text.text, markdown.markdown, junit.junit, github.github, gate_text.as_json):
        words(gated)


FUZZER = Fuzzer(name="records", make=make, attempt=attempt)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
