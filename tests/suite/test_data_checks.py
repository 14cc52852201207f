"""A slip in a suite's data set or in the name of a user's function is found before anything is run or read."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench import registry
from qbench.datasets.options import OPTIONS
from qbench.errors import SuiteError
from qbench.suite import read

CODE = """
import os as system
from torch import nn

def build(width=8, *, depth=1): return None
def needs(width, classes=2): return None
def load(split, count=3): return None
load.splits = ("train", "val")
def plain(split): return None
def free(**options): return None
class Net(nn.Module): pass
if system: conditional = 1
def score(outputs, labels): return 1
def weigh(outputs, labels, weights): return 1
"""
SUITE = """suite: s
models: [{{name: mine, source: {{python: my.py:{model}}}}}]
data: {{dataset: {data}{more}}}
matrix: {{}}
gate: {{accuracy: {{margin: 1, metric: {metric}}}}}
"""


def problem(
    folder: Path,
    *,
    model: str = "build",
    data: str = "digits",
    more: str = "",
    code: str = CODE,
    metric: str = "top1",
) -> str:
    """What is wrong with the suite; empty where nothing is."""
    (folder / "my.py").write_text(code)
    (folder / "x.npz").write_bytes(b"")
    (folder / "s.yaml").write_text(SUITE.format(model=model, data=data, more=more, metric=metric))
    try:
        read(folder / "s.yaml")
    except SuiteError as error:
        return str(error).replace(str(folder), "")
    return ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "{npz: x.npz, sze: 3}"}, "s.yaml:3:30: data.dataset: no option 'sze'; options of npz: classes"),
        ({"data": "{digits: 3}"}, "s.yaml:3:26: data.dataset.digits: takes nothing, got 3; write {dataset: digits}"),
        ({"data": "{npz: x.npz, sclae: 3}"}, "did you mean 'scale'? options of npz: classes, scale"),
        ({"model": "biuld"}, "/s.yaml:2:40: models[0].source.python: no 'biuld' in my.py; did you mean 'build'?"),
        ({"model": "build, args: {widht: 3}"}, "/s.yaml:2:60: models[0].source.args: the function has no argument "
         "'widht'; did you mean 'width'? it takes width, depth"),
        ({"model": "needs"}, "the function needs width; give {args: {width: …}}"),
        ({"data": "{python: my.py:laod}"}, "3:26: data.dataset.python: no 'laod' in my.py; did you mean 'load'"),
        ({"data": "{python: my.py:plain, args: {n: 1}}"}, "no argument 'n'; it takes none"),
        ({"data": "{python: my.py:load}"}, "no split 'test'; the data set has: train, val"),
        ({"data": "{python: my.py:plain}", "more": ", evaluate: {split: tset}"}, "no split 'tset'; did you mean"),
        ({"more": ", calibrate: {split: trian}"}, "/s.yaml:3:44: data.calibrate.split: no split 'trian'; did you mean"),
        ({"data": "[digits]"}, "/s.yaml:3:17: data.dataset: "),
        ({"data": "{scale: 2, mnist: .}", "more": ", calibrate: {split: trian}"}, "no split 'trian'; did you mean"),
        ({"metric": "{python: my.py:plain}"}, "/s.yaml:5:47: gate.accuracy.metric.python: qbench calls plain with 2 "
         "arguments, and it takes 1"),
        ({"metric": "{python: my.py:weigh}"}, "qbench calls weigh with 2 arguments; give weights a default"),
        ({"model": "build}, postprocess: {python: my.py:score"}, "qbench calls score with 1 argument; give labels a"),
        ({"code": "def build(:\n"}, "/my.py:1: SyntaxError: "),
        ({"code": "\0"}, "cannot contain null bytes"),
    ],
)  # fmt: skip
def test_a_slip_is_told_at_its_place(changes: dict[str, str], words: str, tmp_path: Path) -> None:
    """`qbench plan` says it: the file, line and column, what is wrong, and what was meant."""
    assert words in problem(tmp_path, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": "Net"},
        {"model": "conditional"},
        {"model": "free, args: {any: 1}"},
        {"model": "build, args: {width: 1, depth: 2}"},
        {"model": "other", "code": "from elsewhere import *\n"},
        {"model": "other", "code": "globals()['other'] = 1\n"},
        {"model": "other", "code": "def __getattr__(name): return 1\n"},
        {"model": "build, args: {a: 1}", "code": "@decorated\ndef build(): ...\n"},
        {"data": "{python: my.py:load}", "more": ", evaluate: {split: val}"},
        {"data": "{python: my.py:load}", "code": CODE + "load.splits = names()\n"},
        {"data": "{npz: x.npz, scale: 1/255}"},
        {"metric": "{python: my.py:score}", "model": "build}, postprocess: {python: my.py:plain"},
    ],
)
def test_what_can_only_be_known_by_running_is_left_to_the_run(changes: dict[str, str], tmp_path: Path) -> None:
    """No plan is refused for a name that the file may have."""
    assert problem(tmp_path, **changes) == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def score(*arrays): return 1", ""),
        ("def score(outputs, labels, /): return 1", ""),
        ("def score(**options): return 1", ""),
        ("def score(outputs, labels, *, weights=None): return 1", ""),
        ("def score(outputs, labels, *, weights): return 1", "give weights a default"),
        ("def score(outputs): return 1", "qbench calls score with 2 arguments, and it takes 1"),
        ("def score(outputs, labels): return 1\ndef score(outputs): return 1", ""),
        ("def make():\n    global score\n    score = max", ""),
        ("def scores(): pass\ndef _hidden(): pass", "no 'score' in my.py; did you mean 'scores'? it has scores, build"),
        ("def _hidden(): pass", "no 'score' in my.py; it has build"),
    ],
)
def test_a_function_is_called_with_what_qbench_gives_it(code: str, said: str, tmp_path: Path) -> None:
    """By their order; what takes anything, is bound twice or by hand is not known before it runs."""
    message = problem(tmp_path, metric="{python: my.py:score}", code=f"{code}\ndef build(): pass\n")
    assert said in message
    assert bool(message) == bool(said)


@pytest.mark.parametrize(
    ("splits", "said"), [("()", ""), ("[]", ""), ('("train", 3)', ""), ('["a"]', "no split 'train'")]
)
def test_splits_are_those_that_a_function_lists_plainly(splits: str, said: str, tmp_path: Path) -> None:
    """A list of words; anything else is left to the run."""
    message = problem(tmp_path, data="{python: my.py:load}", code=f"{CODE}load.splits = {splits}\n")
    assert said in message
    assert bool(message) == bool(said)


def test_the_functions_of_a_file_are_listed_with_how_many_more_there_are(tmp_path: Path) -> None:
    """A file of many functions: the message names the first and says that there are others."""
    code = "".join(f"def step{index}(): return None\n" for index in range(11))
    said = problem(tmp_path, model="absent", code=code)
    assert said.endswith("it has step0, step1, step2, step3, step4, step5, step6, step7 and 3 more")


def test_every_built_in_data_set_has_its_options() -> None:
    """A plan knows the options of each by the model that the data set itself reads them with."""
    assert set(OPTIONS) == set(registry.BUILT_IN["dataset"])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{image-folder: ., order: brg}", "/s.yaml:3:42: data.dataset.order: expected one of rgb, bgr, got 'brg'"),
        ("{npz: x.npz, scale: 1/0}", "data.dataset.scale: expected a number such as 0.5 or 1/255, got '1/0'"),
        ('{npz: x.npz, scale: "1e400"}', "data.dataset.scale: expected a number such as 0.5 or 1/255, got '1e400'"),
        ("{npz: x.npz, mean: [1, 2], std: [1, 2, 3]}", "s.yaml:3:17: data.dataset: mean has 2 channels, std has 3"),
        ("{image-folder: ., resize: 8}", "data.dataset: resize needs size, the height and width of the crop after it"),
        ("{imagenet: ., resize: 8}", "data.dataset.resize: the short side (8) must be at least size (224)"),
        ("{python: my.py:plain, args: 3}", "data.dataset.args: expected a mapping of names to values, got 3"),
        ("{csv: x.csv, tokens: [ids, ids]}", "data.dataset.tokens: expected a list of ids, mask, types, each once"),
        ("{mnist: ., scale: 2}", "data.dataset: no option 'scale'; mnist takes no options"),
    ],
)  # fmt: skip
def test_a_value_that_a_data_set_would_refuse_is_told_before_a_run(data: str, words: str, tmp_path: Path) -> None:
    """`qbench plan` checks an option's value as the data set does, and says where it stands."""
    assert words in problem(tmp_path, data=data)


def test_all_problems_of_a_data_set_are_told_at_once(tmp_path: Path) -> None:
    """One reading of the suite is enough to mend every option."""
    said = problem(tmp_path, data="{npz: x.npz, classes: 1, seed: -1, sclae: 2}")
    assert [words in said for words in ("dataset.classes: ", "dataset.seed: ", "no option 'sclae'")] == [True] * 3


@pytest.mark.parametrize(
    ("code", "name", "is_there"),
    [
        ("import a.b", "a", True),
        ("import a.b", "b", False),
        ("try:\n    import a.b\nexcept ImportError:\n    from c import d as e", "a", True),
        ("try:\n    import a.b\nexcept ImportError:\n    from c import d as e", "e", True),
        ("try:\n    import a.b\nexcept ImportError:\n    from c import d as e", "d", False),
        ("import a\nif a.here:\n    def f(): ...", "f", True),
        ("import a\nif a.here:\n    class F: ...", "F", True),
        ("import a\nif flag: pass", "flag", False),
        ("with a as b: c = 1", "c", True),
        ("def outer():\n    inner = 1", "inner", False),
    ],
)
def test_a_name_is_there_where_a_statement_at_the_top_binds_it(
    code: str, name: str, is_there: bool, tmp_path: Path
) -> None:
    """Also inside of conditions and attempts; what is only read, or bound inside of a function, is not."""
    message = problem(tmp_path, model=name, code=f"{code}\n")
    assert (f"no '{name}' in my.py" in message) != is_there
    assert bool(message) != is_there


def test_an_error_of_syntax_stands_in_its_line(tmp_path: Path) -> None:
    """Not in the first one."""
    assert "/my.py:3: SyntaxError: " in problem(tmp_path, code="x = 1\n\ndef build(:\n")


def test_what_is_no_name_of_a_function_is_told_once(tmp_path: Path) -> None:
    """That the file has none such is not told beside it."""
    said = problem(tmp_path, model="3x")
    assert said.count("\n") == 0
    assert "models[0].source.python: expected file.py:function, got 'my.py:3x'" in said


def test_the_first_parameter_of_a_data_set_is_the_split_and_the_others_are_arguments(tmp_path: Path) -> None:
    """Which the suite may give."""
    data = "{{python: my.py:load, args: {{{}: 4}}}}"
    splits = ", evaluate: {split: val}"
    assert problem(tmp_path, data=data.format("count"), more=splits) == ""
    assert "no argument 'split'; it takes count" in problem(tmp_path, data=data.format("split"), more=splits)


def test_a_file_of_four_megabytes_is_read_and_no_larger_one(tmp_path: Path) -> None:
    """No source code is larger; it is left to the run."""
    code = "def biuld(): ...\n"
    largest = code + "#" * (4 * 2**20 - len(code))
    assert "no 'build' in my.py" in problem(tmp_path, code=largest)
    assert problem(tmp_path, code=largest + "#") == ""


def test_a_file_without_functions_is_said_to_have_none(tmp_path: Path) -> None:
    """Where there is nothing to choose from."""
    assert "no 'build' in my.py; it has no function" in problem(tmp_path, code="size = 3\n")
