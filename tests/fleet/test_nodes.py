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


def test_a_class_is_named_by_what_is_told():
    """Without trade marks and clock; at most 34 characters of the processor, else the architecture, else nothing."""
    names = {
        "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz": "intel-xeon-platinum-8481c-2c",
        "a" * 33 + " bc": f"{'a' * 33}-2c",
        None: "arm64-2c",
    }
    for cpu, name in names.items():
        (formed,), _ = nodes.form_classes([node("1", fingerprint={**PRINT, "cpu": cpu, "arch": "arm64"})])
        assert formed.label == name
    (formed,), _ = nodes.form_classes([node("1", fingerprint={**PRINT, "cpu": None})])
    assert formed.label == "unknown-2c"


def test_a_class_has_as_many_cores_as_each_of_its_nodes_has():
    """One label may hold nodes whose children may use more."""
    (formed,), _ = nodes.form_classes([node("2", cores=(0, 1, 2)), node("1", cores=(0, 1))])
    assert (formed.cores, [each.name for each in formed.nodes]) == (2, ["1", "2"])
    assert formed.nodes[0].title == "10.0.0.1 (1)"
    assert replace(OWN, name="0123456789abcdef").title == "here (01234567)"


def test_every_node_of_the_second_kind_is_named():
    """Each is a machine that its owner expects to work."""
    others = [node(name, label="a", fingerprint={**PRINT, "cpu": "Graviton"}) for name in "23"]
    _, problems = nodes.form_classes([node("1", label="a"), *others])
    assert [problem.partition(" is left out")[0] for problem in problems] == [
        "node 10.0.0.2 (2)",
        "node 10.0.0.3 (3)",
    ]


def test_of_several_classes_like_this_machine_the_largest_is_home():
    """It has the most places."""
    classes, _ = nodes.form_classes([node("1", label="z"), node("2", label="a"), node("3", label="a")])
    home = nodes.choose_home(classes, PRINT)
    assert home is not None
    assert home.label == "a"


def test_a_library_that_is_missing_is_said_to_be():
    """There, or here; what both lack is no difference."""
    own = replace(OWN, versions={"torch": "2", "ray": None, "numpy": None})
    refusal = nodes.explain_refusal(replace(own, versions={"torch": None, "ray": "2.60"}), own)
    assert refusal == (
        "node here (): torch is not installed (here 2); ray 2.60 (here not installed); install the same versions there"
    )
    assert nodes.explain_refusal(replace(own, niceness=1), own) is not None
    assert nodes.explain_refusal(replace(own, niceness=-5), own) is None


def test_the_niceness_is_the_highest_that_remains(monkeypatch, tmp_path):
    """Each thread is set to 0 where that is allowed; one that has ended says nothing."""
    import os

    threads, tried = {1: 0, 4: 12, 2: 5, 3: 9}, []

    def get(kind, thread):
        assert kind == os.PRIO_PROCESS
        if thread == 4:
            raise ProcessLookupError
        return threads[thread]

    def set_priority(kind, thread, niceness):
        tried.append((kind, thread, niceness))
        if thread == 3:
            raise PermissionError
        threads[thread] = niceness

    class Tasks:
        def __init__(self, name):
            assert name == "/proc/self/task"

        def exists(self):
            return True

        def iterdir(self):
            return [tmp_path / str(thread) for thread in threads]

    monkeypatch.setattr(os, "getpriority", get)
    monkeypatch.setattr(os, "setpriority", set_priority)
    monkeypatch.setattr(nodes, "Path", Tasks)
    assert nodes.count_niceness() == 9
    assert tried == [(os.PRIO_PROCESS, 2, 0), (os.PRIO_PROCESS, 3, 0)]


def test_a_system_that_lists_no_threads_has_no_niceness(monkeypatch, tmp_path):
    """As macOS."""
    monkeypatch.setattr(nodes, "Path", lambda name: tmp_path / "none")
    assert nodes.count_niceness() == 0


def test_a_machine_is_known_by_its_kernels_start(monkeypatch, tmp_path):
    """Which all of its containers share; by its name where the system does not tell."""

    def read():
        return nodes.read_facts(name="n", address="a", label=None, niceness=0).machine

    (tmp_path / "boot_id").write_text("1234-5678\n")
    monkeypatch.setattr(nodes, "_BOOT", tmp_path / "boot_id")
    assert read() == "1234-5678"
    monkeypatch.setattr(nodes, "_BOOT", tmp_path / "none")
    monkeypatch.setattr(nodes.platform, "node", lambda: "host")
    assert read() == "host"
