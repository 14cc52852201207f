"""What torch does not promise to keep is used in one place, and its range of versions is told alike everywhere."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from qbench import torch_private
from qbench.backends import torch_runner

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "qbench" / "torch_private.py"
# Inductor promises nothing of what is beside `torch.compile`.
INDUCTOR = {
    ROOT / "qbench" / "quant" / "artifacts" / name: ("torch._inductor", "torch._C._aoti", "torch.export.pt2_archive")
    for name in ("aoti.py", "inductor_vectors.py")
}


def list_private_names(path: Path) -> set[str]:
    """The names of torch with a leading underscore anywhere in them that a module uses, from ``torch`` on."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        parts: list[str] = []
        if isinstance(node, ast.Attribute):
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.insert(0, inner.attr)
                inner = inner.value
            parts = [inner.id, *parts] if isinstance(inner, ast.Name) else []
            names.add(".".join(parts))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("torch.") and re.search(r"\._(?!_)", name)}


def test_private_names_of_torch_stand_in_one_module() -> None:
    """Another torch that renames one is one file to change; Inductor's stand in the two that compile with it."""
    elsewhere = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "qbench").rglob("*.py"))
        if path != PLACE
        for name in list_private_names(path)
        if not any(name.startswith(prefix) or prefix.startswith(name) for prefix in INDUCTOR.get(path, ()))
    }
    assert elsewhere == set()


def test_the_scan_sees_every_way_to_name_one(tmp_path: Path) -> None:
    """As an attribute, imported from its module, and as a module; a public name is none."""
    path = tmp_path / "module.py"
    path.write_text(
        "import torch._dynamo\nimport torch.nn\nfrom torch.utils import _pytree, data\ntorch._C.x(torch.__file__)\n"
    )
    assert list_private_names(path) == {"torch._dynamo", "torch.utils._pytree", "torch._C", "torch._C.x"}


@pytest.mark.parametrize("name", torch_private.__all__)
def test_each_name_is_there_in_this_torch(name: str) -> None:
    """And has a use: what nobody takes is removed."""
    assert getattr(torch_private, name) is not None
    users = [path for path in (ROOT / "qbench").rglob("*.py") if path != PLACE and name in path.read_text("utf-8")]
    assert users


@pytest.mark.parametrize("path", INDUCTOR, ids=lambda path: path.name)
def test_what_inductor_does_not_promise_is_there_in_this_torch(path: Path) -> None:
    """Each name is a module, or an attribute of one."""
    for name in list_private_names(path):
        owner, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            try:
                module = importlib.import_module(owner)
            except ModuleNotFoundError:  # an attribute of what an attribute of a module is
                continue
            assert hasattr(module, attribute), name


def test_the_range_of_torch_is_told_alike() -> None:
    """By the requirement and the message where torch is missing; `cpu` pins what pip has a CPU build of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = [line for line in project["dependencies"] if line.startswith("torch>")]
    assert f"'{requirement}'" in torch_runner.MISSING
    cpu = [line for line in project["optional-dependencies"]["cpu"] if line.startswith("torch>")]
    assert cpu == ["torch>=2.13,<2.14"]
