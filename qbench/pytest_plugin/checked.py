"""A model file as a test: it fails on the faults that ``qbench check`` finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbench.errors import QbenchError

NAME = "check"


class ModelFile(pytest.File):
    """A model's file, named by ``--qbench-check``: one item."""

    def collect(self) -> Iterator[CheckItem]:
        """The check of the file."""
        yield CheckItem.from_parent(self, name=NAME)


class CheckItem(pytest.Item):
    """The check of one file; warnings and notes are in its report."""

    def runtest(self) -> None:
        """Fails with the faults, and what to do, of a file that is not sound."""
        from qbench.check import text
        from qbench.check.check_file import check_file

        option = self.config.getoption
        try:
            check = check_file(Path(self.path), shapes=tuple(option("qbench_shape")), data=option("qbench_check_data"))
        except QbenchError as error:
            lines, sound = [str(error)], False
        else:
            lines, sound = [*text.list_lines(check)], check.sound
        self.user_properties.extend(("qbench", line) for line in lines)
        if not sound:
            pytest.fail("\n".join(lines), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it stands."""
        return self.path, None, f"{self.path.name}::{self.name}"
