"""The search for holes in the tests: what is changed, which tests are asked, and what is made of their answers."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="the mutants need the extra 'mutants'")
pytest.importorskip("coverage", reason="the mutants need the extra 'mutants'")

import mutants
from mutant_sites import Module, Mutant

LARGER = """\
def larger(a: int | None, b: int = 2) -> int:
    return a if a > b else b
"""
TESTS = """\
from qbench.pair import larger

def test_the_larger():
    assert (larger(5), larger(1)) == (5, 2)

def test_red():
    assert larger(1, 1) == 2

def test_none_of_it():
    pass
"""


def changes(text: str) -> dict[str, Mutant]:
    """Every mutant of a module, by its changed lines."""
    module = Module("qbench/pair.py", text)
    every = [module.mutant(site) for site in module.sites]
    return {" ".join(line.strip() for line in mutant.after): mutant for mutant in every if mutant is not None}


def test_a_change_is_of_code_that_runs() -> None:
    """Comparisons, constants, conditions and calls; no annotation, decorator, text, nor what only types need."""
    assert {after: mutant.kind for after, mutant in changes(LARGER).items()} == {
        "def larger(a: int | None, b: int = 3) -> int:": "number",
        "return a if a >= b else b": "operator",
        "return a if True else b": "branch",
        "return a if False else b": "branch",
    }
    assert set(changes("if x not in y:\n    f('text', 1)\n")) == {
        "if x in y:",
        "if True:",
        "if False:",
        "f('text', 2)",
        "pass",
    }
    assert not changes("LARGEST = 1e100\n")  # one more is the same number
    assert set(changes("MOST = 1.5\n")) == {"MOST = 2.5"}
    assert not changes("if TYPE_CHECKING:\n    x = 1\n\n@cached(1)\ndef f(x: Literal[1]) -> Literal[1]: ...\n")


def test_a_change_knows_its_statement() -> None:
    """Coverage names a statement's first line; a condition is not what it guards."""
    (number,) = changes("x = f(\n    y,\n    1,\n)\n").values()
    assert (number.line, number.lines, number.module_level) == (3, (1, 2, 3, 4), True)
    changed = changes("def f(x):\n    if x:\n        return 1\n")
    assert (changed["if True:"].lines, changed["if True:"].module_level) == ((2,), False)
    assert changed["return 2"].lines == (3,)


def test_a_change_follows_its_lines() -> None:
    """A survivor is tried again although the module has grown above it; where its lines are gone, that is said."""
    mutant = changes(LARGER)["return a if a >= b else b"]
    grown = '"""Of two."""\n\n' + LARGER
    moved = mutant.moved_to(grown)
    assert moved is not None
    assert (moved.line, moved.lines) == (4, (4,))
    assert moved.apply(grown) == grown.replace("a > b", "a >= b")
    assert mutant.moved_to("def larger(a, b=2):\n    return max(a, b)\n") is None


def test_every_room_has_some(tmp_path: Path) -> None:
    """A sample follows from its seed, names each mutant once, and has at least three of the smallest room."""
    lines = {}
    for name, size in (("qbench/small/pair.py", 3), ("qbench/large/pair.py", 80), ("qbench/alone.py", 12)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("".join(f"x{i} = {i} + y\n" for i in range(size)))
        lines[name] = set(range(1, size + 1))
    drawn, again, another = (mutants.draw(tmp_path, lines, 20, random.Random(seed)) for seed in (1, 1, 2))
    assert drawn == again != another
    rooms = [mutants.room_of(mutant.module) for mutant in drawn]
    assert (len(drawn), len({mutant.name for mutant in drawn})) == (20, 20)
    assert 3 <= rooms.count("small") < rooms.count("(top)") < rooms.count("large")
    only = mutants.draw(tmp_path, {"qbench/large/pair.py": {7}}, 20, random.Random(1))
    assert {mutant.line for mutant in only} == {7}


def write_tree(folder: Path, files: dict[str, str]) -> None:
    """A repository with one module, named ``pair``, and these files."""
    tree = folder / "tree"
    pytest_settings = "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\n"
    fixed = {"pyproject.toml": pytest_settings, "qbench/__init__.py": "", "qbench/pair.py": LARGER}
    for name, content in (fixed | files).items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)


def test_the_copy_holds_what_git_does_not_ignore(tmp_path: Path) -> None:
    """New files as well, none that is gone; the copy's files are its own."""
    root, tree = tmp_path / "root", tmp_path / "tree"
    (root / "qbench").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    for name, text in (("qbench/a.py", "x = 1\n"), ("old.txt", ""), (".gitignore", "build/\n"), ("build/b", "")):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    mutants.copy_repository(root, tree)
    (root / "old.txt").unlink()
    (root / "qbench/a.py").write_text("x = 2\n")
    mutants.copy_repository(root, tree)
    files = [f for f in tree.rglob("*") if f.is_file() and f.suffix != ".pyc" and ".git" not in f.parts]
    assert sorted(f.name for f in files) == [".gitignore", "a.py"]
    assert (tree / "qbench/a.py").read_text() == "x = 2\n"
    listed = subprocess.run(["git", "ls-files"], cwd=tree, check=True, capture_output=True, text=True).stdout
    assert {".gitignore", "qbench/a.py"} <= set(listed.split())  # tests ask which files are the repository's


def test_tests_that_execute_the_change_are_asked(tmp_path: Path) -> None:
    """A test that was red before, or runs elsewhere, kills nothing; the module is then as it was."""
    write_tree(tmp_path, {"tests/test_pair.py": TESTS})
    assert json.loads(in_a_process(TRIES, str(tmp_path))) == {
        "def larger(a: int | None, b: int = 3) -> int:": ["killed", "tests/test_pair.py::test_the_larger"],
        "return a if a >= b else b": ["survived", None],
        "return a if True else b": ["killed", "tests/test_pair.py::test_the_larger"],
        "return a if False else b": ["killed", "tests/test_pair.py::test_the_larger"],
    }
    assert (tmp_path / "tree/qbench/pair.py").read_text() == LARGER


def test_a_traced_file_is_asked_wherever_it_lies(tmp_path: Path) -> None:
    """A file that executes the change through other modules is found by no import; first the own file alone is asked,
    in seconds, and never twice."""
    far = "from qbench.far import most\n\ndef test_most():\n    assert most(1, 5, 3) == 5\n"
    most = "from qbench import near\n\ndef most(*of):\n    return near.larger(near.larger(*of[:2]), of[2])\n"
    write_tree(
        tmp_path,
        {
            "qbench/near.py": "from qbench.pair import larger\n",
            "qbench/far.py": most,
            "tests/test_pair.py": "def test_none_of_it():\n    pass\n",
            "tests/rooms/test_far.py": far,
        },
    )
    own, blind, traced = json.loads(in_a_process(ASKS, str(tmp_path)))
    assert own == {"outcome": "survived", "tests": 0, "unasked": []}
    assert blind == {"outcome": "survived", "tests": 0, "unasked": []}
    assert traced == {"outcome": "killed", "by": "tests/rooms/test_far.py::test_most"}


def test_lines_that_a_child_executes_are_the_whole_files(tmp_path: Path) -> None:
    """A child process is no test's own: any test of the file may have made it run."""
    write_tree(tmp_path, {"tests/test_child.py": CHILD})
    lines = json.loads(in_a_process(MAPS, str(tmp_path)))
    path = "tests/test_child.py"
    assert lines == {"1": [path], "2": [path, f"{path}::test_itself"]}


def test_a_run_that_hangs_is_ended(tmp_path: Path) -> None:
    """A run has an exit code, or None where it was not done in time; a crash is no success."""
    assert json.loads(in_a_process(RUNS, str(tmp_path))) == [0, 3, 70, None]


TRIES = """
import json, sys
from pathlib import Path
from noticing_tests import Copy
from test_mutants import LARGER, changes

folder = Path(sys.argv[1])
copy = Copy(folder / "tree", folder, folder)
tried = ((after, copy.try_mutant(mutant)) for after, mutant in changes(LARGER).items())
print(json.dumps({after: [result.get(key) for key in ("outcome", "by")] for after, result in tried}))
"""
ASKS = """
import json, sys
from pathlib import Path
from noticing_tests import Copy
from test_mutants import LARGER, TESTS, changes

folder = Path(sys.argv[1])
copy, mutant = Copy(folder / "tree", folder, folder), changes(LARGER)["return a if True else b"]
answers = [copy.try_mutant(mutant, 0.0), copy.try_mutant(mutant)]
for path in copy.test_files():
    copy.trace(path)
(folder / "tree/tests/test_pair.py").write_text(TESTS)  # asked once more, it would notice
print(json.dumps([*answers, copy.try_mutant(mutant)]))
"""
CHILD = """\
import subprocess, sys
from qbench.pair import larger

def test_child():
    command = "from qbench.pair import larger; assert larger(5) == 5"
    subprocess.run([sys.executable, "-c", command], check=True)

def test_itself():
    assert larger(1) == 2
"""
MAPS = """
import json, sys
from pathlib import Path
from noticing_tests import Copy

folder = Path(sys.argv[1])
file = Copy(folder / "tree", folder, folder)._map("tests/test_child.py", "qbench/pair.py")
print(json.dumps(file.lines["qbench/pair.py"]))
"""
RUNS = """
import json, signal, sys
from pathlib import Path
from forked_run import run_forked

folder = Path(sys.argv[1])
codes = [run_forked(function, 60.0, folder, folder) for function in (lambda: 0, lambda: 3, lambda: 1 // 0)]
print(json.dumps([*codes, run_forked(signal.pause, 0.2, folder, folder)]))
"""


def in_a_process(program: str, folder: str) -> str:
    """What the program prints, in a process that may fork and that no plug-in of this session's has touched."""
    paths = os.pathsep.join(map(str, (Path(__file__).parent, Path(__file__).parents[2])))
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,_hypothesis_pytestplugin"}
    environment = {**os.environ, "PYTHONPATH": paths, **plugins}
    command = [sys.executable, "-c", program, folder]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_table_counts_by_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equivalent ones are in no share, survivors are named, and an unfinished sample says how far it is."""
    mutant = next(iter(changes(LARGER).values()))
    sample = [dataclasses.replace(mutant, module=f"qbench/{room}/pair.py", line=n) for n, room in enumerate("aaabb", 1)]
    sample = [dataclasses.replace(mutant, first=mutant.line) for mutant in sample]
    outcomes = dict(zip((m.name for m in sample), ("killed", "survived", "survived", "killed"), strict=False))
    results = {name: {"outcome": outcome, "unasked": ["tests/test_a.py"]} for name, outcome in outcomes.items()}
    assert mutants._print_table(sample, results, {sample[2].name: "of no use"}) == 1
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:6] for line in printed.splitlines()[2:5]}
    assert rows == {
        "a": ["1", "1", "1", "0", "50.0%"],
        "b": ["1", "0", "0", "0", "100.0%"],
        "all": ["2", "1", "1", "0", "66.7%"],
    }
    assert "4 of 5 tried" in printed
    assert f"survived  {sample[1].name}  qbench/a/pair.py:2" in printed
    assert sample[2].name not in printed
    assert printed.count("1 test files not asked") == 1


def test_an_equivalent_mutant_needs_a_reason(tmp_path: Path) -> None:
    """A name alone would hide a survivor."""
    (tmp_path / "equivalent.txt").write_text("0123abcd  the order of a set\n\n89abcdef\n")
    with pytest.raises(SystemExit, match="no reason is given why these are equivalent: 89abcdef"):
        mutants._equivalent(tmp_path)
    (tmp_path / "equivalent.txt").write_text("0123abcd  the order of a set\n")
    assert mutants._equivalent(tmp_path) == {"0123abcd": "the order of a set"}
