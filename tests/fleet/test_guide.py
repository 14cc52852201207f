"""The guide's Kubernetes manifest is what its API takes, as far as its fields can be checked here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

import qbench
from qbench.fleet import engine

GUIDE = Path(qbench.__file__).parent / "guide/fleet.md"


def test_the_manifest_is_a_ray_cluster_whose_workers_offer_the_resource():
    """YAML with the fields of ray.io/v1; what Ray gets as --resources is a quoted JSON object, as KubeRay passes it."""
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (manifest,) = [parsed for block in blocks if "kind" in (parsed := yaml.safe_load(block))]
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayCluster")
    groups = manifest["spec"]["workerGroupSpecs"]
    for group in (manifest["spec"]["headGroupSpec"], *groups):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "RAY_worker_niceness", "value": "0"} in container["env"]
        assert all(isinstance(text, str) for text in group["rayStartParams"].values())
    for group in groups:
        assert json.loads(json.loads(group["rayStartParams"]["resources"])) == {engine.RESOURCE: 1}
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
