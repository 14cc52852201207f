"""Names of others before a path is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import info, int8
from made_runs import run_folder

from qbench.errors import UsageError
from qbench.files import stored_name
from qbench.record.schema import CalibrationSeeds
from qbench.record.stored_run import read_run

paths = st.text() | st.lists(st.sampled_from(["..", ".", "", "a", "~", "C:", "\\", "a b"])).map("/".join)
EVIL = (
    "../x",
    "a/../../x",
    "/x",
    "a//b",
    "a/./b",
    ".x",
    "a/.x",
    "..",
    ".",
    "",
    "C:x",
    "a\\..\\x",
    "a\0b",
    "-x",
    "a\nb",
)


@given(paths)
def test_a_name_stays_in_its_folder_and_a_path_below_it(text: str) -> None:
    """Whatever the text: it is refused, or it names one thing in the folder (a path: a thing below it)."""
    folder = Path("/top/folder")
    for require, levels in ((stored_name.require_name, 1), (stored_name.require_path, 1000)):
        try:
            below = (folder / require(text)).relative_to(folder)
        except ValueError:
            continue
        assert 1 <= len(below.parts) <= levels
        assert ".." not in below.parts
        assert below.as_posix() == text


@given(paths)
def test_the_id_of_a_case_gives_one_name_or_none(text: str) -> None:
    """Slashes of an id become part of the name."""
    try:
        name = stored_name.name_of(text)
    except ValueError:
        return
    assert Path(name).name == name
    assert stored_name.name_of("net/static@eager/onednn/t1/b8/ray:big") == "net__static@eager__onednn__t1__b8__ray-big"


@pytest.mark.parametrize("evil", EVIL)
def test_a_path_that_leads_elsewhere_is_refused(evil: str) -> None:
    """Upwards, absolute, on another drive, hidden, like an option, or with what no name of a file has."""
    for require in (stored_name.require_name, stored_name.require_path, stored_name.require_digest):
        with pytest.raises(ValueError, match=r"no (name|path|sha256)"):
            require(evil)


def test_what_qbench_gives_as_names_is_taken() -> None:
    """Suites, files of cases with a recipe and of a class of nodes, and a digest."""
    for path in ("samples/net__static@eager+x__onednn__t1__b1__ray:big.npz", "predictions/a.values.npz", "é ü.json"):
        assert stored_name.require_path(path) == path
    assert stored_name.require_digest("0f" * 32) == "0f" * 32


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("field", ["samples", "predictions", "layers", "artifact.sha256", "artifact.key", "seeds"])
def test_no_record_is_read_that_names_another_place(tmp_path: Path, field: str, evil: str) -> None:
    """The line and the field are named, whatever command reads it."""
    record = int8()
    assert record.artifact is not None
    assert record.accuracy is not None
    if field == "seeds":
        scores = CalibrationSeeds(seeds=(0,), values=(0.5,), predictions=(evil,))
        record = replace(record, accuracy=replace(record.accuracy, calibration=scores))
    elif field.startswith("artifact."):
        record = replace(record, artifact=replace(record.artifact, **{field.partition(".")[2]: evil}))
    else:
        record = replace(record, **{field: evil})
    place = {"seeds": "accuracy.calibration.predictions.0"}.get(field, field)
    with pytest.raises(UsageError, match=rf"records\.jsonl:1: {place}: .*no (name|path|sha256)"):
        read_run(run_folder(tmp_path / "run", [record], info()))


def test_a_name_has_at_most_as_many_bytes_as_a_file_system_takes() -> None:
    """Just that many are one; letters beyond ASCII count by their bytes."""
    most = 255
    assert stored_name.require_name("x" * most) == "x" * most
    assert stored_name.require_name("\u00e9" * (most // 2)) == "\u00e9" * (most // 2)
    for name in ("x" * (most + 1), "\u00e9" * (most // 2 + 1)):
        with pytest.raises(ValueError, match=f"has more than {most} bytes"):
            stored_name.require_name(name)


@pytest.mark.parametrize("require", [stored_name.require_name, stored_name.require_path, stored_name.require_digest])
def test_a_long_name_is_shown_by_its_beginning(require: Callable[[str], str]) -> None:
    """80 letters of it."""
    with pytest.raises(ValueError, match=f"^'-{'x' * 79}' "):
        require(f"-{'x' * 300}")
