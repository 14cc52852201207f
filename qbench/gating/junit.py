"""Verdicts as JUnit XML, which every CI system shows; pure.

A case is a class, a rule a test; ``time`` is what measuring it took. The elements and attributes are those that both
Jenkins' schema (junit-10.xsd) and GitLab read.
"""

from __future__ import annotations

from xml.etree import ElementTree

from qbench import formatting
from qbench.formatting import clean
from qbench.gating.gate import Gated
from qbench.gating.verdict import Verdict

_ELEMENTS = {"fail": "failure", "invalid": "error", "hold": "error", "skip": "skipped"}


def junit(gated: Gated) -> str:
    """A FAIL is a failure; INVALID, MISSING and an INCONCLUSIVE that holds are errors, so that no reader calls them
    passed; what the suite skips is skipped."""
    elements = [_ELEMENTS.get(verdict.effect) for verdict in gated.verdicts]
    counts = {
        "tests": str(len(elements)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "time": _seconds(sum(map(_spent, gated.verdicts))),
    }
    root = ElementTree.Element("testsuites", {"name": "qbench gate", **counts})
    skipped = {"skipped": str(elements.count("skipped"))}
    suite = ElementTree.SubElement(root, "testsuite", {"name": clean(gated.suite), **counts, **skipped})
    for verdict, element in zip(gated.verdicts, elements, strict=True):
        _add_case(suite, verdict, element)
    if gated.notes:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(map(clean, gated.notes))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_case(suite: ElementTree.Element, verdict: Verdict, element: str | None) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=clean(verdict.case), name=clean(verdict.rule), time=_seconds(_spent(verdict))
    )
    measured = clean(f"{verdict.text}  {verdict.source}")
    why = clean(formatting.one_line(verdict.reason or ""))
    if element is None:
        clauses = [verdict.outcome, measured, why] if verdict.outcome != "PASS" else [measured]
        ElementTree.SubElement(case, "system-out").text = "  ".join(filter(None, clauses))
    elif element == "skipped":
        ElementTree.SubElement(case, element, message="  ".join(filter(None, (verdict.outcome, measured, why))))
    else:
        ElementTree.SubElement(case, element, type=verdict.outcome, message=why).text = measured


def _spent(verdict: Verdict) -> float:
    return 0.0 if verdict.times is None else verdict.times.spent


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
