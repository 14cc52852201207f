"""Every example of the README and of the guide works as it is written, and the pages keep their form.

A block that begins with ``# file: NAME`` is a file, and lies in the folder in which the commands run. A YAML block
without it is a part of a suite, a Python block without it a program. Commands run once, in the order of the pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import onnx_networks
import pytest
import yaml
from short_measurements import short_measurements

import qbench
from qbench import suite
from qbench.cli import main
from qbench.plan import planner

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GUIDE = ROOT / "qbench/guide"
USER = ROOT / "tests/data/user"
PAGES = [README, *sorted(GUIDE.rglob("*.md"))]
# What a part of a suite in the guide names, beside the files that the pages show: only that it is there counts.
NAMED_FILES = (
    "model.pt",
    "data.npz",
    "reviews.csv",
    "lines.csv",
    "tokenizer.json",
    "photos/train/a/1.jpg",
    "scenes/images/1.jpg",
    "annotations.json",
)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A block, or one command of a console block, with its place in the page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name in the block's first line, if it is a file."""
        match = re.match(r"# file: (\S+)\n", self.text)
        return match[1] if match else None


def blocks_of(page):
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 2
        yield Example(page=str(page.relative_to(ROOT)), line=line, language=match[1], text=match[2])


def commands_of(block):
    """The lines of a console block, each of which is a command."""
    for offset, line in enumerate(block.text.splitlines()):
        yield Example(page=block.page, line=block.line + offset, language="command", text=line)


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = [command for block in BLOCKS if block.language == "console" for command in commands_of(block)]
FILES = {block.file: block for block in BLOCKS if block.file}
SUITE_PARTS = [block for block in BLOCKS if block.language == "yaml" and not block.file]
FIRST_FILES = [block for block in BLOCKS if block.file and block.page == "README.md"]
FIRST_COMMANDS = COMMANDS[:3]
PROGRAMS = [block for block in BLOCKS if block.language == "python" and not block.file]


def model_for_digits(folder):
    """``model.onnx``, which the reader has: a layer called ``classifier``, the input ``image`` of a digit."""
    draft = onnx_networks.Draft()
    x = draft.add("Relu", [draft.conv("image", "conv", 1, 8)], "relu")
    x = draft.add("Flatten", [draft.add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])], "flatten")
    x = draft.linear(x, "classifier", 8 * 4 * 4, 10)
    return onnx_networks.save(draft.model({"image": ["batch", 1, 8, 8]}, {x: ["batch", 10]}), folder)


def int8_model(folder):
    """``mine-int8.onnx`` and ``quantized.pt``, of which a suite says only that they are int8."""
    draft = onnx_networks.Draft()
    scale, zero = draft.constant("scale", np.float32(0.1)), draft.constant("zero", np.uint8(0))
    x = draft.add("QuantizeLinear", ["x", scale, zero], "quantized")
    x = draft.add("DequantizeLinear", [x, scale, zero], "float")
    onnx_networks.save(draft.model({"x": ["batch", 10]}, {x: ["batch", 10]}), folder, "mine-int8")
    with zipfile.ZipFile(folder / "quantized.pt", "w") as archive:
        archive.writestr("quantized/constants.pkl", b"")
        archive.writestr("quantized/code/net.py", "ops.quantized.linear(x)")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command's exit code, and its place with all that it printed."""

    code: int
    text: str


class Workplace:
    """The reader's folder: runs each command once, and before it those that stand before it."""

    def __init__(self, folder):
        self.folder = folder
        self.ended = {}

    def run(self, command):
        """How a command ended."""
        for example in COMMANDS[: COMMANDS.index(command) + 1]:
            if example not in self.ended:
                self.ended[example] = self._run(example)
        return self.ended[command]

    def _run(self, command):
        """qbench in this process, so that all commands share the one that forks their workers with torch loaded."""
        line = command.text.removeprefix("$ ").partition("    # exit code ")[0]
        if line.startswith("python "):
            program = [sys.executable, *shlex.split(line)[1:]]
            done = subprocess.run(program, cwd=self.folder, capture_output=True, text=True, check=False)
            return Ended(code=done.returncode, text=f"{command}\n{done.stdout}\n{done.stderr}")
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", shlex.split(line))
            with redirect_stderr(StringIO()) as errors, pytest.raises(SystemExit) as ended:
                main.main()
        return Ended(code=ended.value.code, text=f"{command}\n{out.getvalue()}\n{errors.getvalue()}")


@pytest.fixture(autouse=True, scope="module")
def _short_measurements():
    with short_measurements():
        yield


@pytest.fixture(scope="module")
def _without_index():
    """A reader without a network; nothing is fetched in a test."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, _without_index):
    """One folder for all examples, with the files that the pages show, and what they say that the reader has."""
    folder = tmp_path_factory.mktemp("reader")
    reader = Workplace(folder)
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", ""), ("PIP_CONFIG_FILE", "/dev/null")):
        _without_index.setenv(name, value)
    write_files(folder, FIRST_FILES)
    for command in FIRST_COMMANDS:  # with nothing but the files that stand before them
        reader.run(command)
    write_files(folder, FILES.values())
    for name in NAMED_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    model_for_digits(folder)
    int8_model(folder)
    return reader


def write_files(folder, blocks):
    """Makes the files that blocks show."""
    for block in blocks:
        (folder / block.file).write_text(block.text.partition("\n")[2], encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_every_command_works_as_written(command, workplace):
    """It ends with 0, or with a code that stands behind it, and shows no traceback of a worker."""
    assert re.match(r"\$ (qbench|python) ", command.text)
    codes = command.text.partition("    # exit code ")[2] or "0"
    ended = workplace.run(command)
    assert ended.code in {int(code) for code in codes.split(" or ")}, ended.text
    assert "Traceback" not in ended.text


def test_the_commands_write_the_files_that_the_pages_name(workplace):
    """A baseline, the gate's two files, a model for Ascend."""
    workplace.run(COMMANDS[-1])
    assert (workplace.folder / "reports/baselines/mine.jsonl").exists()
    assert (workplace.folder / "int8/model_ascend_model.onnx").exists()
    assert (workplace.folder / "gate.md").read_text(encoding="utf-8").count("PASS") >= 2
    assert "<testsuite" in (workplace.folder / "gate.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", SUITE_PARTS, ids=str)
def test_every_part_of_a_suite_is_valid(block, workplace):
    """Put in the place of the same keys of mine.yaml, it is a suite that can be planned."""
    keys = yaml.safe_load(FILES["mine.yaml"].text) | yaml.safe_load(block.text)
    file = workplace.folder / f"part-{block.page.replace('/', '-')}-{block.line}.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    read = suite.read(file)
    assert planner.make_plan(read, planner.load_backends(read), cores=1).cases


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_every_program_prints_what_its_comments_say(block, workplace, monkeypatch, capsys):
    """``print(…)  # output``; the reader has ``batches`` of digits."""
    monkeypatch.chdir(workplace.folder)
    batches = [np.random.default_rng(seed).standard_normal((2, 1, 8, 8)).astype(np.float32) for seed in range(4)]
    exec(compile(block.text, str(block), "exec"), {"batches": batches})
    expected = re.findall(r"^print\(.*\)  # (.+)$", block.text, flags=re.MULTILINE)
    assert expected
    assert capsys.readouterr().out.splitlines() == expected


def test_the_metric_shown_scores_each_example():
    """1 where the right class is among the two highest outputs, else 0."""
    names = {}
    exec(compile(FILES["my_metric.py"].text, "my_metric.py", "exec"), names)
    outputs = np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    assert names["top_two"](outputs, np.array([1, 0, 0])).tolist() == [1, 0, 1]


def test_the_postprocess_shown_finds_boxes():
    """Of two cells of one object the better one, as corners; of an image without scores none."""
    names = {}
    exec(compile(FILES["decode.py"].text, "decode.py", "exec"), names)
    outputs = np.zeros((2, 4 + 2, 3), dtype=np.float32)
    outputs[0, :, 0], outputs[0, :, 1] = (20, 30, 10, 8, 0.9, 0), (21, 30, 10, 8, 0.8, 0)
    boxes = names["decode"](outputs)
    assert np.allclose(boxes[0], [[15, 26, 25, 34, 0.9, 0]])
    assert boxes[1].shape == (0, 6)


def test_the_files_shown_first_are_a_whole_example(workplace):
    """Three files and three commands, typed into an empty folder: no step is missing, and the network has learned."""
    assert [block.file for block in FIRST_FILES] == ["my_model.py", "my_data.py", "mine.yaml"]
    assert [command.text for command in FIRST_COMMANDS] == [
        "$ python my_model.py",
        "$ qbench plan mine.yaml",
        "$ qbench run mine.yaml",
    ]
    ended = [workplace.run(command) for command in FIRST_COMMANDS]
    assert [command.code for command in ended] == [0, 0, 0], ended[-1].text
    assert "guess" not in ended[-1].text


@pytest.mark.parametrize("name", ["my_model.py", "my_data.py", "my_score.py", "mine.yaml"])
def test_the_files_shown_are_the_files_shipped(name):
    """What a reader copies from the page is what lies in tests/data/user."""
    assert FILES[name].text.partition("\n")[2] == (USER / name).read_text(encoding="utf-8")


def test_the_readme_is_short():
    """A newcomer reads it to the end; what is longer goes to the guide."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 310


def test_the_first_screen_holds_the_two_commands():
    """A fresh machine needs these two lines and nothing else, before the first heading."""
    first = README.read_text(encoding="utf-8").partition("\n## ")[0]
    assert re.findall(r"`(python3 -m venv [^`]*)`", first) == [
        "python3 -m venv .venv && .venv/bin/pip install -e '.[cpu]' && .venv/bin/qbench run suites/quickstart.yaml",
        "python3 -m venv .venv && .venv/bin/pip install -e '.[cpu,test]' && .venv/bin/pytest",
    ]


def test_every_subcommand_has_its_heading_and_an_example():
    """Below ``## gate`` stands a command that begins with ``qbench gate``."""
    names = {command.name or command.callback.__name__ for command in main.app.registered_commands}
    names |= {group.typer_instance.info.name for group in main.app.registered_groups}
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", README.read_text(), flags=re.DOTALL | re.MULTILINE))
    assert [name for name in sorted(names) if f"\n$ qbench {name}" not in sections.get(name, "")] == []


def slug(heading):
    """The anchor of a heading on the repository's page."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors_of(page):
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    """Pages, pictures and headings that a page links to exist; paths of the repository that it names, too."""
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.is_file(), target
        assert not anchor or anchor in anchors_of(file), target
    for path in re.findall(r"`((?:suites|\.github|tests)/[^`*<\s]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_guide_is_complete_in_itself():
    """It is installed with qbench: every page is package data, stands in the index, and links to no page outside."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["qbench"]
    shipped = {file for pattern in patterns for file in (ROOT / "qbench").glob(pattern)}
    index = (GUIDE / "README.md").read_text(encoding="utf-8")
    listed = {"README.md", *re.findall(r"\]\(((?:evidence/)?\w+\.md)\)", index)}
    for page in PAGES[1:]:
        assert page in shipped
        assert str(page.relative_to(GUIDE)) in listed
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).resolve().is_relative_to(GUIDE), target


def test_the_changelog_says_each_thing_in_one_line():
    """Below a version with its date (the newest may be unreleased) and a group stand lines of at most 160
    characters, none of them twice."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", version) for version in versions[1:])
    assert re.fullmatch(r"\d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)", versions[0])
    assert set(re.findall(r"^### (.*)$", text, flags=re.MULTILINE)) <= {"Added", "Changed", "Fixed", "Security"}
    entries = [line for line in text.splitlines() if line.startswith("- ")]
    assert [line for line in text.splitlines() if len(line) > 160 or line.startswith(" ")] == []
    assert [entry for entry in entries if entries.count(entry) > 1] == []


def test_help_names_the_guide(tmp_path):
    """`qbench --help` ends with the guide's folder on this machine, on one line, however long it is."""
    clone = tmp_path / ("a clone-of-mine-" * 8)
    clone.mkdir()
    (clone / "qbench").symlink_to(Path(qbench.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-m", "qbench", "--help"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(clone)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].strip() == str(clone / "qbench" / "guide")
    assert (Path(done.stdout.splitlines()[-1].strip()) / "README.md").is_file()
