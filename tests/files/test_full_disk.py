"""What says that a disk is full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from qbench.errors import CaseError
from qbench.files.full_disk import FULL, is_full, names_full_disk


@pytest.mark.parametrize("code", FULL)
def test_the_words_of_the_system_are_known_in_any_error(code):
    """What did not fit was removed, and there is room for less again."""
    assert names_full_disk(CaseError(f"the cache cannot be written ({os.strerror(code)}); make room"))
    assert not names_full_disk(CaseError(f"no such layer ({os.strerror(errno.ENOENT)})"))


LIMITED = """
import resource, sys
from pathlib import Path
from qbench.files.full_disk import is_full
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
print(is_full(Path(sys.argv[1])))
"""


@pytest.mark.parametrize(("longest", "full"), [(2**20, False), (2**20 - 1, True), (0, True)])
def test_a_folder_is_full_that_takes_no_further_mebibyte(tmp_path, longest, full):
    """A writer that failed at its next block has left less than that; nothing of the attempt stays."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(longest)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{full}\n", "")
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_not_full(tmp_path):
    """What failed there failed for another reason, which its own error names."""
    assert not is_full(tmp_path / "gone")
