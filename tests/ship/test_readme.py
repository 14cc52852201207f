"""Rules of qbench/ship/readme.py: what the page of a shipped folder says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import fp32, info, int8, same_as_golden
from made_runs import run_folder

from qbench.backends.program import Program
from qbench.record.schema import Record, TargetFacts
from qbench.record.stored_run import ExamplesInfo, MetricInfo, SuiteInfo, read_run
from qbench.ship.readme import write_readme

PROGRAM = Program(file="net.onnx", libraries=("onnxruntime",), imports=(), load=(), call=())


def page(folder: Path, record: Record, program: Program = PROGRAM) -> str:
    """The page of a record."""
    return write_readme(read_run(run_folder(folder, [record])), record, program, None)


@pytest.mark.parametrize(
    ("cpus", "sentence", "may_saturate"),
    [
        (None, "It was made for the CPU that it was built on alone.", True),
        (("native",), "It was made for the CPU that it was built on alone.", True),
        (("vnni",), "It was made for these kinds of CPU: vnni.", True),
        (("vnni", "arm"), "It was made for these kinds of CPU: vnni and arm.", True),
        (
            ("avx2", "vnni"),
            "It was made for these kinds of CPU: avx2 and vnni. On others its answers may differ.",
            False,
        ),
    ],
)
def test_the_cpus_are_those_of_the_target(
    tmp_path: Path, cpus: tuple[str, ...] | None, sentence: str, may_saturate: bool
) -> None:
    """One that names kinds of CPU is not for the machine of the build alone; where sums may saturate is said of each
    that was not made for such kernels."""
    record = int8()
    assert record.artifact is not None
    target = None if cpus is None else TargetFacts(cpus=cpus)
    text = page(tmp_path / "run", replace(record, artifact=replace(record.artifact, target=target)))
    assert sentence in text
    assert ("sums may saturate" in text) == may_saturate


def test_the_level_of_limits_stands_beside_them(tmp_path: Path) -> None:
    """Where there are any."""
    assert "In brackets are 95 % limits." in page(tmp_path / "timed", int8())
    bare = replace(int8(), latency=None, speedup=None, accuracy=None)
    assert "In brackets" not in page(tmp_path / "bare", bare)


def test_the_level_of_the_test_is_told_of_the_change(tmp_path: Path) -> None:
    """Where the run's suite bounds the loss."""
    text = "suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
    described = info(suite=SuiteInfo(name="demo", file="s.yaml", text=text))
    run = read_run(run_folder(tmp_path / "run", [fp32(), int8()], described))
    page = write_readme(run, run.records[1], PROGRAM, None)
    said = "In brackets are 95 % limits, of the change against fp32 90 % limits, those of the test."
    assert said in page


@pytest.mark.parametrize(
    ("target", "environment", "made_for"),
    [
        (TargetFacts(cpus=("avx2",), compiled_for="haswell"), {"cpu": "CPU A"}, "haswell"),
        (TargetFacts(cpus=("avx2",)), {"cpu": "CPU A"}, "CPU A"),
        (None, {"cpu": "CPU A"}, "CPU A"),
        (None, {}, "the CPU that compiled it"),
    ],
)
def test_machine_code_runs_on_what_it_was_compiled_for(
    tmp_path: Path, target: TargetFacts | None, environment: dict[str, str], made_for: str
) -> None:
    """Where that is not told, on the machine of the run, and newer ones."""
    record = int8("net/static/inductor/t1/b1")
    assert record.artifact is not None
    record = replace(record, artifact=replace(record.artifact, target=target))
    run = read_run(run_folder(tmp_path / "run", [record], info(environment=environment)))
    said = f"- It holds machine code: it runs on {made_for} and newer ones alone."
    assert said in write_readme(run, record, PROGRAM, None).splitlines()


def test_fp32_is_made_for_every_cpu(tmp_path: Path) -> None:
    """No sum of it saturates, and it has no share of int8."""
    text = page(tmp_path / "run", fp32())
    assert "It was made for" not in text
    assert "multiply-accumulates" not in text
    assert "size of the file" in text


def test_a_score_has_a_unit_where_the_run_tells_its_metric(tmp_path: Path) -> None:
    """Without it, nothing says what the figure is."""
    record = int8()
    run = read_run(run_folder(tmp_path / "run", [record], info(metric=None)))
    text = write_readme(run, record, PROGRAM, None)
    assert "top1" not in text
    assert "change against fp32" not in text


def test_torch_is_installed_without_the_libraries_of_graphics_cards(tmp_path: Path) -> None:
    """In words: whose index it is depends on where one installs. Other runtimes have one build."""
    assert "`--index-url`" in page(tmp_path / "torch", int8(), replace(PROGRAM, libraries=("torch",)))
    assert "--index-url" not in page(tmp_path / "onnx", int8())


def test_the_change_against_fp32_is_a_figure(tmp_path: Path) -> None:
    """Beside the score, where it was measured."""
    record = int8()
    assert record.accuracy is not None
    assert "change against fp32" in page(tmp_path / "a", record)
    assert "change against fp32" not in page(
        tmp_path / "b", replace(record, accuracy=replace(record.accuracy, delta=None))
    )


def test_whole_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's pick by its answer, and a case that was named by hand of a run that tells less: as they are written.
    ``QBENCH_WRITE_GOLDEN=1`` writes them anew."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    several = ExamplesInfo(types=("uint8", "float32"), shapes=((3, 8, 8), (5,)))
    environment = {"cpu": "CPU A", "python": "3.11.7"}
    told = read_run(run_folder(tmp_path / "told", [fp32(), int8()], info(environment=environment, examples=several)))
    torch = replace(PROGRAM, file="net.pt", libraries=("torch",))
    pages = [write_readme(told, told.records[1], torch, "Ship **static** int8.")]
    bare = int8("net/dynamic/inductor/t2/b8", latency=None, speedup=None)
    assert bare.artifact is not None
    bare = replace(bare, artifact=replace(bare.artifact, target=TargetFacts(cpus=("avx2",), overflowing=("fc",))))
    less = info(environment={}, started=None, metric=MetricInfo(name="mae", percent=False, own_unit="mm"))
    silent = read_run(run_folder(tmp_path / "silent", [bare], less))
    pages.append(write_readme(silent, silent.records[0], PROGRAM, None))
    alone = replace(int8(), accuracy=None, artifact=None)
    single = info(examples=ExamplesInfo(types=("float32",), shapes=((4,),)))
    run = read_run(run_folder(tmp_path / "alone", [alone], single))
    pages.append(write_readme(run, run.records[0], PROGRAM, None))
    assert same_as_golden("shipped_readme.md", "\n---\n\n".join(pages))
