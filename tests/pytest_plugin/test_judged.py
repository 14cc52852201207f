"""What pytest's session is held against, and whether artifacts run again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.gating import gate as gates
from qbench.gating.rerun import Rerunner
from qbench.pytest_plugin import judged
from qbench.pytest_plugin.judged import RunRequest, match_exactly
from qbench.suite import parse

SUITE = parse("suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n", file="s.yaml")


@pytest.fixture(name="asked")
def asked_(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the gate was asked for."""
    asked: list[dict[str, Any]] = []

    def gate_run(folder: Path, baseline: Path | None, **options: Any) -> Any:
        asked.append({"folder": folder, "baseline": baseline, **options})
        return SimpleNamespace(verdicts=())

    monkeypatch.setattr(gates, "gate_run", gate_run)
    monkeypatch.setattr(judged, "committed_baseline", lambda suite: Path(f"committed-{suite}"))
    return asked


@pytest.mark.parametrize(("stored", "again"), [(False, True), (True, False)])
def test_artifacts_run_again_unless_stored_figures_are_asked_for(
    asked: list[dict[str, Any]], stored: bool, again: bool
) -> None:
    """As by `qbench gate`: side by side, where ``--qbench-stored`` does not say otherwise."""
    judged._judge(RunRequest(suite=SUITE, cases=None, stored=stored), Path("run"))
    assert isinstance(asked[0]["rerun"], Rerunner) is again
    assert (asked[0]["rerun"] is None) is not again


def test_what_is_named_is_judged_and_nothing_else(asked: list[dict[str, Any]]) -> None:
    """The baseline that is given before the committed one; the cases of the session by their exact names."""
    judged._judge(RunRequest(suite=SUITE, cases=None), Path("run"))
    judged._judge(RunRequest(suite=SUITE, cases=("m/static/x/t1/b1", "m[1]/x"), baseline=Path("given")), Path("run"))
    assert [(each["baseline"], each["only"], each["as_run"]) for each in asked] == [
        (Path("committed-s"), None, True),
        (Path("given"), "m/static/x/t1/b1,m[[]1]/x", True),
    ]
    assert match_exactly(["a*b"]) == "a[*]b"
