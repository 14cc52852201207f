"""What pytest asks of the plugin: its options, which files are suites, and where the runs lie."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbench.pytest_plugin import hooks
from qbench.pytest_plugin.checked import ModelFile
from qbench.pytest_plugin.items import SuiteFile

Source = pytest.Config.ArgsSource


def configure(
    args: list[str], source: Source, *suites: str, option: str = "qbench", **more: Any
) -> tuple[list[str], list[tuple[str, str]]]:
    """What is collected then, and the lines that were added to the configuration."""
    lines: list[tuple[str, str]] = []
    config: Any = SimpleNamespace(
        args=list(args),
        args_source=source,
        getoption=lambda name: list(suites if name == option else ()),
        addinivalue_line=lambda name, line: lines.append((name, line)),
        **more,
    )
    hooks.pytest_configure(config)
    return config.args, lines


def test_a_suite_that_is_named_is_collected_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the folders of the configuration, beside what else the command line names, and once."""
    monkeypatch.chdir(tmp_path)
    ci, other = str(tmp_path / "ci.yaml"), str(tmp_path / "other.yaml")
    assert configure(["tests"], Source.TESTPATHS, "ci.yaml")[0] == [ci]
    assert configure(["."], Source.INVOCATION_DIR, "ci.yaml", "other.yaml")[0] == [ci, other]
    assert configure(["test_x.py"], Source.ARGS, "ci.yaml")[0] == ["test_x.py", ci]
    assert configure([ci], Source.ARGS, "ci.yaml")[0] == [ci]


def test_without_a_suite_the_arguments_stay(tmp_path: Path) -> None:
    """And in a worker of xdist, which is told the files; its marker is known to both."""
    for args, lines in (
        configure(["tests"], Source.TESTPATHS),
        configure(["tests"], Source.TESTPATHS, "ci.yaml", workerinput={}),
    ):
        assert args == ["tests"]
        assert [(name, line.partition(":")[0]) for name, line in lines] == [("markers", "qbench")]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("qbench_small.yaml", True),
        ("qbench_small.yml", True),
        ("ci.yaml", True),
        ("QBENCH_small.yaml", False),
        ("my_qbench_small.yaml", False),
        ("qbench_small.yaml.bak", False),
        ("other.yaml", False),
    ],
)
def test_a_suite_is_a_file_by_its_name_or_by_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, taken: bool
) -> None:
    """Any other file is none of the plugin's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SuiteFile, "from_parent", lambda parent, path: ("suite", path))
    given = {"qbench": ["ci.yaml"], "qbench_check": ["model.onnx"]}
    parent: Any = SimpleNamespace(config=SimpleNamespace(getoption=given.__getitem__))
    assert hooks.pytest_collect_file(tmp_path / name, parent) == (("suite", tmp_path / name) if taken else None)


def test_a_model_is_a_file_by_the_option_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named to be checked, it is collected beside nothing else; other models are none of the plugin's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ModelFile, "from_parent", lambda parent, path: ("model", path))
    given = {"qbench": [], "qbench_check": ["model.onnx"]}
    parent: Any = SimpleNamespace(config=SimpleNamespace(getoption=given.__getitem__))
    assert hooks.pytest_collect_file(tmp_path / "model.onnx", parent) == ("model", tmp_path / "model.onnx")
    assert hooks.pytest_collect_file(tmp_path / "other.onnx", parent) is None
    assert configure(["tests"], Source.TESTPATHS, "model.onnx", option="qbench_check")[0] == [
        str(tmp_path / "model.onnx")
    ]


def test_each_run_is_told_once_in_order() -> None:
    """Whatever else tests keep as properties, and whether they failed."""
    reports = [
        SimpleNamespace(user_properties=[("qbench_run", Path("b")), ("qbench", "a line")]),
        SimpleNamespace(user_properties=[("qbench_run", "a")]),
        SimpleNamespace(user_properties=[("qbench_run", "b")]),
        SimpleNamespace(),
    ]
    lines: list[str] = []
    terminal: Any = SimpleNamespace(
        stats={"passed": reports[:2], "failed": reports[2:]}, write_line=lambda line: lines.append(line)
    )
    hooks.pytest_terminal_summary(terminal, SimpleNamespace())  # type: ignore[arg-type]
    assert lines == ["qbench: `qbench report a` shows this run", "qbench: `qbench report b` shows this run"]


def test_the_options_do_nothing_unless_they_are_given() -> None:
    """No suite, no folder, no baseline, and artifacts run again."""
    parser = pytest.Parser(_ispytest=True)
    hooks.pytest_addoption(parser)
    given = parser.parse([])
    assert (given.qbench, given.qbench_out, given.qbench_baseline, given.qbench_stored) == ([], None, None, False)
    given = parser.parse(["--qbench", "a.yaml", "--qbench", "b.yaml", "--qbench-stored", "--qbench-out", "o"])
    assert (given.qbench, given.qbench_out, given.qbench_stored) == (["a.yaml", "b.yaml"], "o", True)
