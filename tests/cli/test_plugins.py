"""``qbench list``: a table for people, rows for programs."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from qbench.cli.plugins import list_
from qbench.doctor import plugin_list

ROW = plugin_list.PlugIn(kind="metric", name="mine", origin="m.py:3", distribution="my-package", missing="install mine")


@pytest.fixture(autouse=True)
def _one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_list, "listing", lambda: (ROW,))


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """As ``plugin_list`` writes it."""
    list_()
    assert capsys.readouterr().out == plugin_list.to_text((ROW,)) + "\n"


def test_programs_get_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` is one list."""
    list_(as_json=True)
    printed = capsys.readouterr().out
    assert json.loads(printed) == [{**asdict(ROW), "modes": []}]
    assert printed.splitlines()[:3] == ["[", " {", '  "kind": "metric",']
