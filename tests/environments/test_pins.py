"""Rules of qbench/environments/pins.py: one package in one version, and nothing that pip would take for more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.environments.pins import Pin, normalize_name, parse_pin, parse_pins
from qbench.errors import UsageError


def test_a_pin_is_a_normalized_name_and_a_version() -> None:
    """Spaces around ``==`` do not count, and a name is one however it is written."""
    assert parse_pin("Ruamel.YAML == 0.19.1") == Pin(name="ruamel-yaml", version="0.19.1")
    assert str(parse_pin("torch==2.13.0+cpu")) == "torch==2.13.0+cpu"


@pytest.mark.parametrize(
    "text",
    ["", "onnxruntime", "onnxruntime=1.2", "onnxruntime>=1.2", "==1.2", "a==", "-r==x", "a==1.0 --pre", "a==/tmp/x",
     "a @ b==1", "a[b]==1", "a===1", "a==1.*"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    """An option, a path, a range: the message names the option and shows the form."""
    told = f"{text}: not one package in one version; write it as onnxruntime==1.20.0"
    for where, before in (("--to", "--to "), ("", "")):
        with pytest.raises(UsageError) as raised:
            parse_pin(text, where)
        assert str(raised.value) == f"{before}{told}"


def test_a_package_in_two_versions_is_refused() -> None:
    """Under whatever spelling; the same version twice is once."""
    with pytest.raises(UsageError, match=r"--to a-b==2: a-b==1 was named as well"):
        parse_pins(["a-b==1", "A_b==2"], "--to")
    assert parse_pins(["b==1", "a==2", "b==1"]) == (Pin(name="a", version="2"), Pin(name="b", version="1"))


@pytest.mark.parametrize(
    ("asked", "version", "allowed"),
    [("1.30", "1.30.0", True), ("1.30.0", "1.30", True), ("1.30", "1.30.1", False), ("2.13.0", "2.13.0+cpu", True),
     ("2.13.0+cpu", "2.13.0", False), ("1.0rc1", "1.0rc1", True), ("1.0", "1.0rc1", False), ("1.0", None, False),
     ("1_x", "1_x", True), ("1_x", "1.0", False), ("1.0", "1_x", False)],
)  # fmt: skip
def test_a_version_is_one_however_it_is_written(asked: str, version: str | None, allowed: bool) -> None:
    """As pip takes it (PEP 440); what is no version there is only itself."""
    assert Pin(name="a", version=asked).allows(version) is allowed


@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,9}[A-Za-z0-9])?", fullmatch=True))
def test_normalizing_twice_is_normalizing_once(name: str) -> None:
    """So a record's names and the index's compare."""
    assert normalize_name(normalize_name(name)) == normalize_name(name)
