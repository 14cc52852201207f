"""Which nodes are alike, and which are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qbench.fleet import nodes

OWN = nodes.read_facts(name="", address="here", label=None, niceness=0)
PRINT = {
    **dict.fromkeys(("arch", "isa_switches", "hypervisor", "os")),
    "cpu": "AMD EPYC(TM) 9B14 Processor",
    "isa": ["avx2"],
    "cores_allowed": 2,
    "cores_total": 2,
}


def node(name, **changes):
    return replace(OWN, **{"name": name, "address": f"10.0.0.{name}", "fingerprint": PRINT, "cores": (0, 1)} | changes)


def test_nodes_with_one_fingerprint_form_a_class():
    """It is named after the processor and its cores, or as its owner says; one more core is another class."""
    other = node("4", fingerprint={**PRINT, "cores_allowed": 4}, cores=(0, 1, 2, 3))
    classes, problems = nodes.form_classes([node("1"), node("2"), node("3", label="zen4"), other])
    assert problems == []
    assert {each.label: len(each.nodes) for each in classes} == {
        "amd-epyc-9b14-2c": 2,
        "zen4": 1,
        "amd-epyc-9b14-4c": 1,
    }


def test_one_label_for_machines_that_differ_leaves_the_second_kind_out():
    """Latencies of the two would be taken for one another; the message names the field."""
    classes, problems = nodes.form_classes(
        [node("1", label="a"), node("2", label="a", fingerprint={**PRINT, "cpu": "Graviton"})]
    )
    assert [len(each.nodes) for each in classes] == [1]
    assert len(problems) == 1
    assert "another cpu (Graviton, not AMD EPYC(TM) 9B14 Processor)" in problems[0]


def test_home_is_the_class_whose_builds_are_those_of_this_machine():
    """The number of cores decides no artifact; another processor has none."""
    classes, _ = nodes.form_classes([node("1"), node("2", fingerprint={**PRINT, "cpu": "Graviton"})])
    home = nodes.choose_home(classes, {**PRINT, "cores_allowed": 96})
    assert home is not None
    assert home.label == "amd-epyc-9b14-2c"
    assert nodes.choose_home(classes, {**PRINT, "cpu": "Xeon"}) is None


@pytest.mark.parametrize("library", ["python", "torch", "onnxruntime", "openvino", "numpy", "qbench", "ray"])
def test_another_version_is_refused_with_the_difference(library):
    """Before anything runs: its artifacts would be others."""
    refusal = nodes.explain_refusal(replace(OWN, versions={**OWN.versions, library: "0.0.1"}), OWN)
    assert refusal is not None
    assert f"{library} 0.0.1 (here {OWN.versions[library] or 'not installed'})" in refusal


def test_other_code_of_qbench_and_low_priority_are_refused():
    """Ray starts workers at niceness 15 by default, where any other process takes the core of what is measured."""
    assert nodes.explain_refusal(OWN, OWN) is None
    assert "other code" in str(nodes.explain_refusal(replace(OWN, code="x"), OWN))
    assert "RAY_worker_niceness=0" in str(nodes.explain_refusal(replace(OWN, niceness=15), OWN))
