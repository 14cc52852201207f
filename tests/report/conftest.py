"""What tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import start_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium that keeps its console's log."""
    yield from start_chromium(tmp_path_factory.mktemp("profile"))
