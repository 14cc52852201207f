"""A class of a cluster's nodes as a host of a suite."""

from __future__ import annotations

import pytest

from qbench import registry, suite
from qbench.errors import UnknownName
from qbench.plan.planner import make_plan

TEXT = """
suite: fleet
models: [{name: digits-cnn}]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [torch, onednn], threads: [1, 2], batch_sizes: [1]}
hosts: [native, "ray:zen4"]
"""


@pytest.fixture
def read(tmp_path):
    file = tmp_path / "suite.yaml"
    file.write_text(TEXT)
    return suite.read(file, ())


def test_a_class_is_named_by_its_label() -> None:
    """It sets nothing: a node is measured as it is. What is no label is no host."""
    host = registry.load("host", "ray:zen4-8c")
    assert (host.name, host.kind, dict(host.environment())) == ("ray:zen4-8c", "node", {})
    for name in ("ray:", "ray:a b", "ray:../x", "rayx"):
        with pytest.raises(UnknownName):
            registry.entry("host", name)


def test_without_a_cluster_its_cases_are_skipped(read) -> None:
    """The reason says how to name the cluster."""
    plan = make_plan(read, cores=2)
    there = [skip for skip in plan.skipped if skip.key.host == "ray:zen4"]
    assert len(there) == 4
    assert all("--on ray://HOST:PORT" in skip.reason for skip in there)


def test_with_a_cluster_they_are_planned_for_the_cores_of_its_nodes(read) -> None:
    """A case needs as many cores as it has threads where it runs, not where the run was started."""
    plan = make_plan(read, cores=2, nodes={"ray:zen4": 1})
    assert {planned.case.id for planned in plan.cases if planned.case.host == "ray:zen4"} == {
        "digits-cnn/fp32/torch/t1/b1/ray:zen4",
        "digits-cnn/static/onednn/t1/b1/ray:zen4",
    }
    assert {skip.reason for skip in plan.skipped} == {
        "2 threads, but a node of ray:zen4 has 1 usable cores; take fewer threads"
    }


def test_a_class_that_the_cluster_lacks_is_a_skip_that_names_those_it_has(read) -> None:
    """Another cluster may have it: the suite is no error."""
    plan = make_plan(read, cores=2, nodes={"ray:graviton": 4})
    assert {skip.reason for skip in plan.skipped} == {"the cluster has no nodes of this class; it has ray:graviton"}
