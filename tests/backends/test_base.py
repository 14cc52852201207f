"""Rules of qbench/backends/base.py and fake.py: what every backend is given, and what is read off what it built."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench.backends import fake
from qbench.backends.base import Backend, BuildJob, Built, Runner
from qbench.errors import CaseSkipped
from qbench.models.base import Network
from qbench.modes import MODES
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.flow import Conversion
from qbench.quant.recipe import Recipe

INPUTS = (np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10))


def job(folder: Path, mode: str = "static") -> BuildJob:
    """A job on ten examples of two inputs."""
    return BuildJob(network=Network(module=None, kind="module"), mode=mode, recipe=Recipe(), calibration=INPUTS,
                    training=None, folder=folder)  # fmt: skip


def test_a_few_examples_are_tried_and_one_is_traced(tmp_path: Path) -> None:
    """Of every input the first eight, and the first as a batch."""
    build_job = job(tmp_path)
    assert [array.tolist() for array in build_job.probes] == [array[:8].tolist() for array in INPUTS]
    assert [array.tolist() for array in build_job.example] == [[[0, 1]], [0]]


def test_an_artifact_is_built_to_be_shipped_unless_it_is_to_be_watched(tmp_path: Path) -> None:
    """What tells where its time goes may be slower."""
    assert job(tmp_path).watched is False


def layer(macs: int | None) -> Layer:
    """A layer with so much work."""
    return Layer(name="l", operator="o", macs=macs)


@pytest.mark.parametrize(
    ("macs", "uncounted", "total"),
    [((3, 4), None, 7), ((), None, 0), ((3, None), None, None), ((3, 4), "why", None), ((0,), None, 0)],
)
def test_the_work_of_a_build_is_known_where_all_of_it_is(
    macs: tuple[int | None, ...], uncounted: str | None, total: int | None
) -> None:
    """A sum of some of the layers would be too little."""
    built = Built(format="f", file="m", layers=tuple(map(layer, macs)), uncounted=uncounted)
    assert built.macs == total


def test_the_notes_of_a_build_are_one() -> None:
    """None where there are none."""
    built = Built(format="f", file="m", layers=())
    assert built.note is None
    assert replace(built, conversion=Conversion(notes=("a", "b"))).note == "a; b"


class Several(Runner):
    """Gives what it is given, as two outputs; counts its calls."""

    calls = 0

    def prepare(self, inputs: Any) -> Any:
        """As they are."""
        return inputs

    def __call__(self, prepared: Any) -> Any:
        """The same."""
        self.calls += 1
        return prepared

    def outputs(self, result: Any) -> Any:
        """The first."""
        return result[0]

    def observed(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def test_the_digest_is_of_every_output() -> None:
    """In their order; a runner that knows of one alone tells that."""
    transposed = np.arange(4).reshape(2, 2).T

    class Both(Several):
        def all_outputs(self, result: Any) -> Any:
            return result

    told = hashlib.sha256(transposed.tobytes("C") + INPUTS[1].tobytes()).hexdigest()
    assert Both().digest((transposed, INPUTS[1])) == told
    assert Several().digest((transposed, INPUTS[1])) == hashlib.sha256(transposed.tobytes("C")).hexdigest()


class Plain(fake.Fake):
    """A backend that says no more than it must."""

    modules = ("torch", "my_runtime.session")

    def libraries(self) -> tuple[str, ...]:
        """Two that run, one that builds."""
        return ("torch", "exporter", "my-runtime")

    def load(self, file: Path, *, threads: int) -> Runner:
        """The same each time."""
        return RUNNER


RUNNER = Several()


def test_what_a_backend_does_not_say_has_a_default(tmp_path: Path) -> None:
    """It runs on every CPU, chooses nothing, needs no compiler, and tells nothing of nodes, layers or deployment."""
    backend = Plain()
    assert backend.runtime_libraries() == ("torch", "my-runtime")
    assert (backend.why_not_for("avx2"), backend.toolchain(), backend.read_layers(job(tmp_path), tmp_path)) == (
        *(None, None, None),
    )
    assert backend.resolve("static", Recipe(calibrator="mse")) == Recipe(calibrator="mse")
    with pytest.raises(CaseSkipped, match="the backend fake does not say how its files run"):
        backend.deploy(tmp_path, tmp_path, "net")
    with pytest.raises(CaseSkipped, match="fake does not tell where the time of a call goes"):
        backend.time_nodes(tmp_path, INPUTS, threads=1, calls=1)
    assert (Backend.own_qconfig, Backend.float_joins, Backend.watched_builds, Backend.made_up) == (
        *(False, True, False, False),
    )
    assert Backend.machine_code is False


def test_a_call_is_timed_where_nothing_tells_of_its_nodes(tmp_path: Path) -> None:
    """Without nodes, and then watching costs nothing."""
    layers, profile = Plain().watch(tmp_path, INPUTS, threads=1, seconds=0.0)
    assert (layers, profile.nodes) == ((), ())
    assert profile.call_seconds == profile.watched_seconds > 0
    told = CallProfile(nodes=(), call_seconds=1.0, watched_seconds=2.0)

    class Telling(Plain):
        def time_nodes(self, file: Path, inputs: Any, *, threads: int, calls: int) -> CallProfile:
            assert calls >= 1
            return told

    assert Telling().watch(tmp_path, INPUTS, threads=1, seconds=0.0) == ((), told)


@pytest.mark.parametrize("mode", MODES)
def test_a_pretended_artifact_is_as_large_and_as_fast_as_its_mode(mode: str, tmp_path: Path) -> None:
    """It says that it is made up; weights of few bits are named as such, and int8 rounds."""
    built = fake.BACKEND.build(job(tmp_path, mode))
    file = tmp_path / built.file
    assert file.stat().st_size == fake.SIZE_BYTES[mode]
    (only,) = built.layers
    assert (only.macs, only.weight_bits) == (1_000_000, 4 if mode == "weight_only" else None)
    assert only.int8 == (mode in ("dynamic", "static", "qat"))
    assert built.note == "made up, for tests and demos"
    runner = fake.BACKEND.load(file, threads=3)
    assert runner.observed() == {"threads": 3, "interop_threads": 1}
    scores = runner.outputs(runner(runner.prepare(INPUTS)))
    assert scores.shape == (10, fake.CLASSES)
    steps = scores / 0.05
    assert np.allclose(steps, np.round(steps), atol=1e-3) == only.int8
    assert np.array_equal(scores, runner.outputs(runner(runner.prepare(INPUTS))))


def test_a_pretended_call_spends_what_its_file_says() -> None:
    """On the clock that it is given."""
    spent: list[float] = []
    runner = fake.FakeRunner({"seconds": "0.25", "mode": "fp32"}, threads=1, spend=spent.append)
    runner(runner.prepare(INPUTS))
    assert spent == [0.25]
    assert fake.SECONDS["static"] < fake.SECONDS["dynamic"] < fake.SECONDS["fp32"]
