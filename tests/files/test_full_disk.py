"""What says that a disk is full."""

from __future__ import annotations

import errno
import os

import pytest

from qbench.errors import CaseError
from qbench.files.full_disk import FULL, names_full_disk


@pytest.mark.parametrize("code", FULL)
def test_the_words_of_the_system_are_known_in_any_error(code):
    """What did not fit was removed, and there is room for less again."""
    assert names_full_disk(CaseError(f"the cache cannot be written ({os.strerror(code)}); make room"))
    assert not names_full_disk(CaseError(f"no such layer ({os.strerror(errno.ENOENT)})"))
