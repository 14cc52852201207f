"""Damaged files for `qbench check`: each ends with findings or one message, in time.

    python tests/fuzz/checks.py --count 1000 [--seed 0]
    python tests/fuzz/checks.py --only 17                # one of them again

An example is a file as people bring them (tests/fixtures/people_files.py) with some bytes another, cut off, doubled or
replaced, or a model of tests/fuzz/onnx_mutations.py, whose structure is changed. A runtime that dies of one does so in
a process of its own. A find is a traceback, or no end within ``SECONDS``. Races are short: speed is not asked for here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 120.0  # for all that a check starts; each of its children has as long
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]


def damage(content: bytes, chance: random.Random) -> bytes:
    """The bytes of a file with one to four accidents."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(data)) if data else 0
        kind = chance.randrange(6)
        if kind == 0 and data:
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 1 and data:
            data[place] = chance.choice((0, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            del data[place : place + chance.randint(1, 8)]
        elif kind == 4:
            data[place:place] = data[place : place + chance.randint(1, 64)]
        else:
            data[place:place] = chance.randbytes(chance.randint(1, 16))
    return bytes(data)


def write_example(seed: int, folder: Path) -> Path:
    """The file of a seed."""
    from onnx_mutations import hostile
    from people_files import FILES

    chance = random.Random(seed)
    if chance.random() < 0.5:
        return hostile(seed, folder)[0]
    file = chance.choice(list(FILES))(folder / "model.onnx")
    ending = chance.choice((".onnx",) * 8 + (".pt", ".pt2", ".xml", ".pte"))
    target = file.with_suffix(ending)
    target.write_bytes(damage(file.read_bytes(), chance))
    return target


def check_example(seed: int, folder: Path) -> str:
    """The code of the first finding, ``sound``, or ``refused: `` with the kind of message; raises what is a find."""
    from qbench.check import text
    from qbench.check.check_file import check_file
    from qbench.errors import QbenchError
    from qbench.report.check_page import render

    file = write_example(seed, folder)
    shapes = () if file.suffix == ".onnx" else ("1x32x48x48",)
    try:
        checked = check_file(file, shapes=shapes, seconds=0.01)
    except QbenchError as error:
        return f"refused: {type(error).__name__}"
    for line in text.list_lines(checked):
        assert "\n" not in line
        assert "Traceback" not in line
    json.loads(text.as_json(checked))
    render(checked)
    return checked.findings[0].code if checked.findings else "sound"


def shorten_races() -> None:
    """What is timed is timed for as short as can be."""
    from short_measurements import PEAK

    from qbench.check import core_peak, race, runtimes
    from qbench.explain import probes

    race.PROCESSES = race.FEWEST_PROCESSES = 1
    race._WARMUP_SECONDS, race._BLOCK_SECONDS = 0.0, 0.0
    runtimes.SECONDS = 0.0
    probes._MOST_SECONDS, probes._WARMUP_CALLS = 0.0, 1
    core_peak.find_peak = lambda: PEAK


def main() -> int:
    """Exit code 1 for a find."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    chosen = parser.parse_args()
    shorten_races()
    numbers = [chosen.only] if chosen.only is not None else range(chosen.count)
    outcomes, finds, slowest = Counter[str](), list[int](), (0.0, 0)
    for number in numbers:
        seed, begun = chosen.seed * 1_000_003 + number, time.monotonic()
        with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stderr(sys.stdout):
            try:
                outcome = check_example(seed, Path(temporary))
            except Exception:
                outcome = "TRACEBACK"
                print(f"{number}: {traceback.format_exc()}", flush=True)
        took = time.monotonic() - begun
        slowest = max(slowest, (took, number))
        if outcome == "TRACEBACK" or took > SECONDS:
            finds.append(number)
        outcomes[outcome] += 1
        if number % 100 == 99:
            print(f"{number + 1}: {len(finds)} finds", flush=True)
    for outcome, count in outcomes.most_common():
        print(f"{count:5} {outcome}")
    print(f"{len(finds)} finds {finds}; the slowest took {slowest[0]:.1f} s (--only {slowest[1]})")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
