"""Rules of qbench/gating/junit.py, by a parser that is not qbench's and by the schema that Jenkins reads with."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from made_records import same_as_golden
from made_verdicts import GATES, GONE, SAME, SIZE, SLOW, UNSURE, hostile, make_gated

from qbench.gating.junit import junit

# junit-10.xsd of Jenkins' xunit plug-in: the children and attributes that it allows.
ALLOWED = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "disabled", "errors"}),
    "testsuite": (
        {"testcase", "properties", "system-out", "system-err"},
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
    ),
    "testcase": ({"skipped", "error", "failure", "system-out", "system-err"}, {"name", "classname", "time", "status"}),
    "failure": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "skipped": (set(), {"type", "message"}),
    "system-out": (set(), set()),
}


@pytest.mark.parametrize("name", GATES)
def test_every_outcome_has_its_file(name: str) -> None:
    """The golden file of each, which an independent parser reads with the same counts."""
    written = junit(make_gated(GATES[name][1]))
    assert same_as_golden(f"gate_junit_{name}.xml", written)
    read = JUnitXml.fromstring(written.encode())
    (suite,) = read
    counted = suite.tests, suite.failures, suite.errors, suite.skipped
    suite.update_statistics()
    assert counted == (suite.tests, suite.failures, suite.errors, suite.skipped)


def test_nothing_is_called_passed_that_is_not() -> None:
    """FAIL is a failure; what is INVALID, MISSING or holds is an error; what the suite skips is skipped."""
    gated = make_gated([verdict for _, verdicts in GATES.values() for verdict in verdicts])
    (suite,) = JUnitXml.fromstring(junit(gated).encode())
    for verdict, case in zip(gated.verdicts, suite, strict=True):
        expected = {"fail": Failure, "invalid": Error, "hold": Error, "skip": Skipped}.get(verdict.effect)
        assert [type(result) for result in case.result] == ([] if expected is None else [expected])


def test_times_are_what_measuring_took() -> None:
    """In seconds, of each rule and of the whole; 0 where nothing was run."""
    (suite,) = JUnitXml.fromstring(junit(make_gated([SLOW, SIZE, UNSURE])).encode())
    assert [case.time for case in suite] == [12.5, 0.0, 12.5]
    assert suite.time == 25.0


def test_it_keeps_to_the_schema() -> None:
    """Elements and attributes that the schema has, also with hostile names, which stay text."""
    verdicts = [*(verdict for _, each in GATES.values() for verdict in each), *hostile().verdicts, SAME, GONE]
    root = ElementTree.fromstring(junit(make_gated(verdicts, suite="<&>\n\x00")))
    for element in root.iter():
        children, attributes = ALLOWED[element.tag]
        assert {child.tag for child in element} <= children
        assert set(element.attrib) <= attributes
