"""Nothing lies in the product that the product does not use: what only a test or a benchmark calls belongs to it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qbench"

# Names that nothing in qbench mentions, each with who uses it.
USED_BY_OTHERS = {
    "__getattr__": "Python asks a module for names that it lacks",
    "all_": "typer calls it: `qbench onnx all`",
    "PYTEST_BENCHMARK": "typer: a choice of `qbench export --format`",
    "persistent_id": "pickle calls it while it writes",
    "persistent_load": "pickle calls it while it reads",
    "create_args_for_root": "torch.fx's tracer calls it",
    "is_leaf_module": "torch.fx's tracer calls it",
    "path_stats": "importlib asks a loader",
    "get_next": "ONNX Runtime's quantizer calls it of a data reader",
    "_should_skip_dynamo": "torch asks a dispatch mode",
    "reportinfo": "pytest asks an item",
    "runtest": "pytest calls it of an item",
    "pytest_addoption": "a hook of pytest",
    "pytest_configure": "a hook of pytest",
    "pytest_collect_file": "a hook of pytest",
    "pytest_terminal_summary": "a hook of pytest",
    "freeze_ranges": "a training loop of the user's calls it (quantization.md)",
    "betas": "a key of Adam, read by its name",
    "amsgrad": "a key of Adam, read by its name",
    "mcnemar_p": "a key of `gate --json`",
    "_repr_html_": "a notebook asks an object",
    "_repr_png_": "a notebook asks an object",
    "predict_outputs": "a script of the guide (hosts.md)",
}
# Who is called by what its decorator adds it to, whatever its name: pydantic, columns with a cell of their own.
CALLED_BY_DECORATOR = {"model_validator", "field_validator", "field_serializer", "drawn"}
# Dunder methods, and what pydantic reads of a class.
READ_BY_PYTHON = re.compile(r"__\w+__|model_config|schema_")


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(function: ast.expr) -> str:
    """The last name of what is called: of ``family.drawn`` it is ``drawn``."""
    return getattr(function, "attr", getattr(function, "id", ""))


def list_definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, classes, and names that a module or a class binds, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            called = {_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}
            if not called & CALLED_BY_DECORATOR:
                yield node.name, node.lineno
        if isinstance(node, ast.Module | ast.ClassDef):
            for line in node.body:
                targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
                yield from ((target.id, line.lineno) for target in targets if isinstance(target, ast.Name))


def list_uses(tree: ast.Module) -> Iterator[str]:
    """Names that are read, attributes, and words of strings that are no docstrings: the registry names plug-ins so, a
    parent what its child shall call, columns the fields of a record."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented)
                  and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"\w+", node.value)


@functools.cache
def find_unused(package: Path) -> dict[str, str]:
    """The names defined in a package that neither its modules nor its templates use, with file and line."""
    trees = {path: parse(path) for path in sorted(package.rglob("*.py"))}
    used = {name for tree in trees.values() for name in list_uses(tree)}
    for template in (*package.rglob("*.jinja"), *package.rglob("*.js")):
        used |= set(re.findall(r"\w+", template.read_text(encoding="utf-8")))
    return {
        name: f"{path.relative_to(package.parent)}:{line}"
        for path, tree in trees.items()
        for name, line in list_definitions(tree)
        if name not in used and not READ_BY_PYTHON.fullmatch(name)
    }


def test_the_product_uses_what_it_defines() -> None:
    """A name that nothing mentions is deleted, or moves to the test or benchmark that wants it."""
    unused = {name: where for name, where in find_unused(PACKAGE).items() if name not in USED_BY_OTHERS}
    assert unused == {}


def test_what_is_excused_is_there_and_needs_it() -> None:
    """An excuse goes with its name, and with the first use of it."""
    unused = find_unused(PACKAGE).keys() | {"__getattr__"}
    assert set(USED_BY_OTHERS) <= unused


def test_the_scan_finds_what_is_unused(tmp_path: Path) -> None:
    """A function, a class, a constant and a field that nothing reads; not what a string or a template names."""
    package = tmp_path / "made"
    package.mkdir()
    (package / "a.py").write_text(
        'KEPT, _LOST = 1, 2\n_GONE = 3\ndef dead():\n    """Of use nowhere: dead."""\n'
        "class Facts:\n    read: int\n    unread: int\ndef asked(): return KEPT + Facts.read\ndef shown(): ...\n"
    )
    (package / "b.py").write_text("CALL = 'made.a:asked'\nprint(CALL)\n")
    (package / "page.jinja").write_text("{{ shown }}")
    assert find_unused(package) == {"_GONE": "made/a.py:2", "dead": "made/a.py:3", "unread": "made/a.py:7"}
