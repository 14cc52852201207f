"""The pages of a report by axe-core, the checks that accessibility tools share: nothing is found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from chromium import needs_chromium, show
from made_changes import CHANGE, make_upgraded
from made_checks import CHECK
from made_history import write_history
from made_records import RUN_V1
from made_runs import flipped_run
from made_verdicts import SAME, SLOW, UNSURE

from qbench.report.build import build_report
from qbench.report.check_page import write_check_page
from qbench.report.history_page import build_history
from qbench.upgrade import page as upgrade_page

pytestmark = needs_chromium
FINDINGS = """
const done = arguments[0];
axe.run().then((result) => done(result.violations.map((rule) =>
  [rule.id, ...rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])));
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The script; the package that brings it along is not imported."""
    package = metadata.distribution("axe-playwright-python")
    return Path(str(package.locate_file("axe_playwright_python/axe.min.js"))).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report, one that is compared with another run and has images, a history, a check, and an upgrade."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(RUN_V1, folder / "plain")
    flipped_run(folder / "compared")
    write_check_page(CHECK, folder / "check.html")
    upgraded = make_upgraded([replace(SLOW, case=CHANGE.case)], [replace(UNSURE, case=CHANGE.case), SAME])
    (folder / "upgrade.html").write_text(upgrade_page.render(upgraded), encoding="utf-8")
    return {
        "check": folder / "check.html",
        "upgrade": folder / "upgrade.html",
        "report": build_report(folder / "plain"),
        "comparison": build_report(folder / "compared", other=RUN_V1),
        "history": build_history(write_history(folder / "runs", runs=9, changed=5)),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("name", ["report", "comparison", "history", "check", "upgrade"])
def test_nothing_is_found(browser: Any, axe: str, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    """As the page opens, and with everything unfolded: colours, names, landmarks, what the keyboard reaches."""
    show(browser, pages[name], width=width, scheme=scheme)
    browser.execute_script(axe)
    assert browser.execute_async_script(FINDINGS) == []
    browser.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; });")
    assert browser.execute_async_script(FINDINGS) == []
