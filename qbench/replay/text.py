"""A replay in words, and as JSON; pure."""

from __future__ import annotations

import json
from dataclasses import asdict

from qbench import formatting
from qbench.replay.comparison import Replayed

SCHEMA = 1


def write_sentence(replayed: Replayed) -> str:
    """What it comes to, in one sentence without a full stop."""
    if not replayed.differences:
        return (
            f"The same: {replayed.artifacts} artifact{'s' * (replayed.artifacts != 1)} byte for byte, the answers on "
            f"all {replayed.answers:,} examples, {replayed.settings} decision{'s' * (replayed.settings != 1)}"
        )
    return f"Not the same; the first thing that differs: {formatting.one_line(str(replayed.differences[0]))}"


def text(replayed: Replayed) -> str:
    """The sentence, what else differs, what could not be made as it was, and both folders."""
    lines = [write_sentence(replayed)]
    lines += [f"then: {formatting.one_line(str(difference))}" for difference in replayed.differences[1:]]
    lines += [f"note: {formatting.one_line(reservation)}" for reservation in replayed.reservations]
    return "\n".join([*lines, f"run: {replayed.before.folder}", f"replay: {replayed.after.folder}"])


def as_json(replayed: Replayed) -> str:
    """Everything, for a program."""
    data = {
        "schema": SCHEMA,
        "suite": replayed.suite,
        "sentence": write_sentence(replayed),
        "run": str(replayed.before.folder),
        "replay": str(replayed.after.folder),
        "differences": [asdict(difference) for difference in replayed.differences],
        "reservations": list(replayed.reservations),
        "exit_code": replayed.exit_code,
    }
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
