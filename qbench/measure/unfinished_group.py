"""What a group knows so far, on disk: a killed run goes on there instead of measuring the whole group again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from qbench.files import atomic
from qbench.files.npz_file import BadNpz
from qbench.measure import samples
from qbench.measure.protocol import CONTROL
from qbench.measure.samples import Samples


class Checkpoint:
    """The samples of a group of cases after each generation of processes, in a folder of its own.

    They serve only the very same group: a resumed run that has another set of cases left starts its group anew.
    """

    def __init__(self, folder: Path, cases: Sequence[str]) -> None:
        self._names = {case: f"{i}.npz" for i, case in enumerate((cases[0], CONTROL, *cases[1:]))}
        group = hashlib.sha256("\n".join(self._names).encode()).hexdigest()
        self._folder = folder / f"partial-{group}"

    def read(self) -> dict[str, Samples]:
        """What is known of every case of the group; empty unless all of them are there."""
        try:
            return {case: samples.load(self._folder / name) for case, name in self._names.items()}
        except BadNpz:
            return {}

    def write(self, known: Mapping[str, Samples]) -> None:
        """Replaces what was kept. A full disk loses nothing but this convenience."""
        with contextlib.suppress(OSError), atomic.replace_folder(self._folder) as part:
            for case, case_samples in known.items():
                samples.save(part / self._names[case], case_samples)

    def remove(self) -> None:
        """Its cases are recorded: nothing is left of it."""
        atomic.remove_marked(self._folder)
