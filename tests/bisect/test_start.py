"""Rules of qbench/bisect/start.py: from a command to its answer, over releases that are wheels in a folder."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bisect_planted import WRAPPER
from made_wheels import make_wheel, use_index

from qbench import suite as suites
from qbench.bisect import start as starting
from qbench.bisect.commits import Commits
from qbench.bisect.start import BISECTIONS
from qbench.cli import main
from qbench.errors import UsageError
from qbench.metrics.spec import MetricSpec
from qbench.progress.live import Silent

NETWORK = """\
import torch
from torch import nn

def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""
SUITE = """\
suite: small
models: [{name: net, source: {python: "network.py:perceptron"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static], backends: [onnxruntime, fake]}
"""
CASE = "net/static/onnxruntime/t1/b1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite on 400 made-up examples."""
    folder = tmp_path_factory.mktemp("suite")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((432, 1, 8, 8)).astype(np.float32)
    arrays = {"train_inputs": inputs[:32], "train_labels": np.arange(32) % 10}
    arrays |= {"test_inputs": inputs[32:], "test_labels": np.arange(400) % 10}
    np.savez(folder / "data.npz", **arrays)
    (folder / "network.py").write_text(NETWORK)
    (folder / "small.yaml").write_text(SUITE)
    return folder


def plant(index: Path, major: int, faults: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Releases with these faults in a row; each hands what it is asked to the real onnxruntime."""
    versions = [f"{major}.{minor}.0" for minor in range(len(faults))]
    for version, fault in zip(versions, faults, strict=True):
        code = WRAPPER.format(version=version, fault=fault)
        make_wheel(index, "onnxruntime", version, {"onnxruntime/__init__.py": code})
    use_index(index, monkeypatch)
    return versions


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    """What the command says as JSON, with its exit code."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["qbench", "bisect", "small.yaml", "--case", CASE, *words, "--json", "-q"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    out, errors = capsys.readouterr()
    assert out, errors
    said: dict = json.loads(out)
    assert said["exit_code"] == ended.value.code
    return said


def test_the_release_that_fails_is_named_and_the_looks_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wheels in a folder, environments, real processes; the same command then answers from what is kept."""
    good, *_, bad = versions = plant(tmp_path, 31, ["", "", "fails", "fails"], monkeypatch)
    ends = ["--good", f"onnxruntime=={good}", "--bad", f"onnxruntime=={bad}", "--on", "failure"]
    said = run(folder, monkeypatch, capsys, *ends)
    assert (said["answer"], said["named"]) == ("named", versions[2])
    assert "planted: this release cannot load the model" in said["text"]
    assert Path(said["journal"]) == BISECTIONS / Path(said["journal"]).parent.name / "bisect.jsonl"
    assert (folder / said["page"]).is_file()
    monkeypatch.setattr(starting.Releases, "open", lambda self, place: pytest.fail("looked again"))
    assert run(folder, monkeypatch, capsys, *ends) == said


def test_the_release_that_flips_answers_is_named_by_its_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The artifact is the same; the share of the examples that differ is told. Here the good end is the newer one."""
    old, *_, new = versions = plant(tmp_path, 32, ["flips", "", ""], monkeypatch)
    ends = ["--good", f"onnxruntime=={new}", "--bad", f"onnxruntime=={old}", "--on", "bits"]
    said = run(folder, monkeypatch, capsys, *ends, "--out", str(tmp_path / "looks"))
    assert (said["named"], said["mended"]) == (versions[1], True)
    assert "is the first that gives these bits again" in said["text"]
    looks = {look["candidate"]: look["value"] for look in said["looks"]}
    assert 0 < looks[old]["value"] < 0.1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--good", "onnxruntime==33.0.0", "--bad", "onnxruntime==33.9.0"], r"nearest: 33\.0\.0, 33\.1\.0"),
        (["--good", "onnxruntime==33.0.0", "--bad", "HEAD"], "HEAD: not one package in one version"),
        (["--good", "torch==1.0", "--bad", "torch==2.0"], "is run by onnxruntime"),
        (["--good", "HEAD~1", "--bad", "HEAD"], "needs a git repository"),
    ],
)
def test_ends_that_are_none_end_with_one_message(
    words: list[str],
    told: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And with exit code 2, before anything is measured."""
    plant(tmp_path, 33, ["", ""], monkeypatch)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["qbench", "bisect", "small.yaml", "--case", CASE, *words, "-q"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == UsageError.exit_code
    _, errors = capsys.readouterr()
    assert errors.count("error: ") == 1
    assert re.search(told, errors)


def test_an_index_that_does_not_answer_ends_the_search(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no missing release."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.chdir(folder)
    ends = ["--good", "onnxruntime==1.0.0", "--bad", "onnxruntime==2.0.0"]
    monkeypatch.setattr(sys, "argv", ["qbench", "bisect", "small.yaml", "--case", CASE, *ends, "-q"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "good", "bad", "name"),
    [
        (CASE, "onnxruntime==1.2", "onnxruntime==1.9", f"small-{CASE}-latency-onnxruntime-1.2-1.9"),
        (CASE, "HEAD~3", "main", f"small-{CASE}-latency-HEAD-3-main"),
        (f"../{'x' * 300}/y", "float", "int8", f"small-{'x' * 300}"),
    ],
)
def test_looks_lie_in_a_folder_by_what_is_asked(case: str, good: str, bad: str, name: str) -> None:
    """A plain name of no more than 200 letters."""
    assert starting._name_folder(ask(case, good, bad)) == name.replace("/", "-")[:200]


def ask(case: str, good: str, bad: str, *, quiet: bool = False) -> starting.Request:
    """What a command asks for."""
    return starting.Request(
        suite=suites.parse("suite: small\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"),
        suite_file=Path("small.yaml"),
        case=case,
        good=good,
        bad=bad,
        on="latency",
        pre_releases=False,
        out=None,
        most_seconds=1.0,
        quiet=quiet,
    )


def test_looks_are_made_as_the_suite_and_the_command_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seed and limits, the time that may be spent; a stage of its own, of nobody knows how many steps."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    stages: list[object] = []
    progress = Silent()
    progress.stage = lambda *stage: stages.append(stage)  # type: ignore[method-assign]
    opened: Any = SimpleNamespace(limits="limits", metric=MetricSpec(name="mae"))
    looks: list[Any] = []

    def bisect(opened: Any, candidates: Any, on: str, folder: Path, make: Any) -> Any:
        looks.append(make("journal"))
        return SimpleNamespace(journal="journal", answer="answer")

    monkeypatch.setattr(starting, "open_suite", lambda suite, planned, progress: opened)
    monkeypatch.setattr(starting, "_open_candidates", lambda *words: "candidates")
    monkeypatch.setattr(starting, "bisect", bisect)
    suite = suites.parse(
        "suite: small\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {backends: [fake]}\nmeasure: {seed: 7}\n"
    )
    request = replace(ask("digits-cnn/static/fake/t1/b1", "HEAD~1", "HEAD"), suite=suite, out=tmp_path / "looks")
    started = starting.start(request, progress)
    assert stages == [("bisect", None)]
    assert (looks[0].seed, looks[0].most_seconds, looks[0].limits) == (7, 1.0, "limits")
    assert (looks[0].journal, looks[0].candidates, looks[0].progress) == ("journal", "candidates", progress)
    assert looks[0].metric == started.metric
    assert (started.metric.name, started.folder, started.answer) == ("mae", tmp_path / "looks", "answer")


@pytest.mark.parametrize("quiet", [False, True])
def test_commits_are_those_between_the_ends_of_the_suites_repository(
    quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of each lies in the folder of the looks."""
    asked: list[object] = []

    def list_commits(*words: object) -> tuple[str, tuple[str, ...], bool]:
        asked.extend(words)
        return "repository", ("a", "b"), True

    monkeypatch.setattr(starting, "list_commits", list_commits)
    opened: Any = "the case"
    commits = starting._open_candidates(ask(CASE, "HEAD~1", "HEAD", quiet=quiet), opened, None, Path("looks"))
    assert isinstance(commits, Commits)
    assert asked == [Path("small.yaml"), "HEAD~1", "HEAD"]
    assert (commits.opened, commits.repository) == ("the case", "repository")
    assert (commits.names, commits.mended) == (("a", "b"), True)
    assert (commits.suite, commits.home, commits.quiet) == (Path("small.yaml"), Path("looks/runs"), quiet)
