"""Rules of qbench/environments/read_back.py: what a process of an environment says of what it imports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qbench.environments.environment import Environment
from qbench.environments.pins import parse_pins
from qbench.environments.read_back import Unimportable, require_imports
from qbench.errors import UsageError

PINS = parse_pins(["qbt-alpha==1.0"])


def say(folder: Path, *, code: int = 0, told: str = "", **entry: Any) -> Environment:
    """An environment whose interpreter ends with that code and says that of the package."""
    place = {"version": "1.0", "place": str(folder), "file": None, "error": None}
    script = folder / "python"
    (folder / "out").write_text(f"a library's own words\n{json.dumps({'qbt-alpha': place | entry})}")
    (folder / "err").write_text(told)
    script.write_text(f"#!/bin/sh\ncat '{folder}/err' >&2\ncat '{folder}/out'\nexit {code}\n")
    script.chmod(0o755)
    return Environment(digest="0" * 64, python=script)


def test_what_was_asked_for_is_what_is_there(tmp_path: Path) -> None:
    """From its own place, or of no module of its own; what libraries print beside it does not matter."""
    require_imports(say(tmp_path), PINS)
    require_imports(say(tmp_path, file=str(tmp_path / "qbt_alpha.py"), told="a warning"), PINS)
    require_imports(say(tmp_path, version="1.0.0+cpu"), PINS)


@pytest.mark.parametrize(
    ("entry", "kind", "words"),
    [
        ({"version": "2.0"}, UsageError, "asked for qbt-alpha==1.0, but 2.0 is what a process there has"),
        ({"file": "/elsewhere/a.py"}, UsageError, "asked for qbt-alpha==1.0, but a process there imports /elsewhere/a"),
        ({"error": "OSError: no"}, Unimportable, "qbt-alpha 1.0 cannot be imported beside what is here: OSError: no"),
        (
            {"error": "ImportError: half", "told": "x\nbuilt for NumPy 1\nagain NumPy"},
            Unimportable,
            "beside what is here: built for NumPy 1$",
        ),
        ({"code": 3}, Unimportable, r"qbt-alpha 1.0 cannot be imported: the process ended \(exit code 3\)"),
        ({"code": 3, "told": "one\ntwo\nthree\nfour\n"}, Unimportable, r"the process ended \(two three four\)"),
    ],
)
def test_what_is_not_is_told(tmp_path: Path, entry: dict[str, Any], kind: type[Exception], words: str) -> None:
    """Another version, another place, and an import that fails; what a binary writes of numpy before all else."""
    with pytest.raises(UsageError, match=words) as caught:
        require_imports(say(tmp_path, **entry), PINS)
    assert type(caught.value) is kind
