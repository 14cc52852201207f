"""An int8 TorchScript file of the user's own: taken as it is, on an engine, held against the float network."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qbench import registry
from qbench.backends import own_torchscript
from qbench.backends.base import BuildJob, Built
from qbench.errors import BuildError, ModeImpossible
from qbench.models.base import Network
from qbench.quant.artifacts import torchscript
from qbench.quant.pytorch import torch_ao
from qbench.quant.recipe import Recipe

ENGINES = [name for name in ("fbgemm", "x86", "onednn", "qnnpack") if registry.load("backend", name).missing() is None]
SCHEMES = {
    "fbgemm": "activations in 7 bits, weights per channel, as in the default qconfig of fbgemm and x86",
    "onednn": "activations in 8 bits, weights per channel, as in the default qconfig of onednn",
    "qnnpack": "activations in 8 bits, weights per tensor, as in the default qconfig of qnnpack",
}


def images(n: int = 16, channels: int = 1) -> np.ndarray:
    """Images of noise."""
    return np.random.default_rng(0).random((n, channels, 8, 8)).astype(np.float32)


def network(*, channels: int = 1, classes: int = 10) -> nn.Module:
    """Two convolutions and a linear layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, classes),
    ).eval()  # fmt: skip


def save(module: nn.Module, file: Path, example: torch.Tensor) -> Path:
    """The module as a traced file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(module, example).save(str(file))
    return file


def by_the_tutorial(module: nn.Module, file: Path, *, engine: str = "fbgemm") -> Path:
    """Quantized by torch's FX flow with an engine's default, and saved."""
    example = torch.from_numpy(images(channels=module[0].in_channels))
    torch_ao.set_engine(engine)
    with torch_ao.known_warnings():
        prepared = torch_ao.prepare_fx(module, torch_ao.get_default_qconfig_mapping(engine), (example,))
        prepared(example)
        return save(torch_ao.convert_fx(prepared), file, example[:1])


def build(name: str, own: Path, folder: Path, *, mode: str = "static", engine: str | None = None) -> Built:
    """The file as the artifact of a backend."""
    backend = registry.load("backend", name)
    folder.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.trace(network(), torch.from_numpy(images(1)))
    return backend.build(
        BuildJob(
            network=Network(kind="torchscript", module=module),
            mode=mode,
            recipe=backend.resolve(mode, Recipe(name="file", file=own.name)),
            calibration=(images(),),
            training=None,
            folder=folder,
            int8_file=own,
            int8_engine=engine,
        )
    )


@pytest.mark.parametrize("name", ENGINES)
def test_a_file_of_the_tutorial_is_taken_as_it_is(name: str, tmp_path: Path) -> None:
    """Its bytes are what is shipped, every layer runs in int8, and the note says on what, and how that is known."""
    own = by_the_tutorial(network(), tmp_path / "int8.pt")
    built = build(name, own, tmp_path / "x")
    assert (tmp_path / "x" / built.file).read_bytes() == own.read_bytes()
    assert [layer.macs for layer in built.layers] == [64 * 8 * 9, 64 * 8 * 72, 512 * 10]
    assert all(layer.int8 for layer in built.layers)
    assert built.fixed_batch is None
    assert f"run on {name}: the file names none; {SCHEMES['fbgemm']}" in str(built.note)
    assert str(built.note).startswith("the user's own file, int8.pt: qbench quantized nothing; ")
    (given,) = built.conversion.input_ranges
    assert given is not None
    runner = registry.load("backend", name).load(tmp_path / "x" / built.file, threads=1)
    with runner.context():
        actual = runner.outputs(runner(runner.prepare((images(),))))
    expected = network()(torch.from_numpy(images())).detach().numpy()
    assert np.abs(actual - expected).max() < 0.1 * np.abs(expected).max()
    assert runner.observed()["engine"] == name


@pytest.mark.parametrize("engine", [name for name in SCHEMES if name in ENGINES])
def test_how_a_file_was_made_shows_in_it(engine: str, tmp_path: Path) -> None:
    """Bits of activations, and weights per channel or tensor, whichever engine runs it; a named engine is told so."""
    own = by_the_tutorial(network(), tmp_path / "int8.pt", engine=engine)
    note = build(ENGINES[0], own, tmp_path / "x", engine=ENGINES[0]).note
    assert f"run on {ENGINES[0]}, which the suite names; {SCHEMES[engine]}" in str(note)


def test_a_dynamic_file_is_of_the_mode_dynamic(tmp_path: Path) -> None:
    """Convolutions stay float, and are counted so."""
    with torch_ao.known_warnings():
        dynamic = torch_ao.quantize_dynamic(network(), {nn.Linear}, torch.qint8)
    own = save(dynamic, tmp_path / "dyn.pt", torch.from_numpy(images(1)))
    built = build("onednn", own, tmp_path / "x", mode="dynamic")
    assert [layer.int8 for layer in built.layers] == [False, False, True]
    assert "bits" not in str(built.note)
    with pytest.raises(BuildError, match=r"write `int8: \{file: dyn.pt, mode: dynamic\}`"):
        build("onednn", own, tmp_path / "y")


def test_what_does_not_fit_the_float_network_is_refused(tmp_path: Path) -> None:
    """Float, another input shape, another number of classes: each says what is wrong, on whichever engine."""
    example = torch.from_numpy(images(1))
    with pytest.raises(BuildError, match=r"float.pt: nothing in it is quantized"):
        build("onednn", save(network(), tmp_path / "float.pt", example), tmp_path / "a")
    three = by_the_tutorial(network(channels=3), tmp_path / "three.pt")
    with pytest.raises(BuildError, match=r"three.pt does not take this data \(float32\[1, 1, 8, 8\]\) on onednn"):
        build("onednn", three, tmp_path / "b")
    with pytest.raises(BuildError, match=r"seven.pt has the shape \[1, 7\], that of the float model \[1, 10\]"):
        build("onednn", by_the_tutorial(network(classes=7), tmp_path / "seven.pt"), tmp_path / "c")


class Two(nn.Module):
    """Two outputs in place of one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.inner(x)
        return y, y + 1


def test_more_outputs_than_the_float_network_has_are_refused(tmp_path: Path) -> None:
    """Which of them is meant is not known."""
    example = torch.from_numpy(images(1))
    inner = torchscript.load(by_the_tutorial(network(), tmp_path / "int8.pt"))
    with pytest.raises(BuildError, match=r"two.pt returns 2 outputs, the float model as the suite calls it one"):
        build("onednn", save(Two(inner), tmp_path / "two.pt", example), tmp_path / "x")


class OneAtATime(nn.Module):
    """Takes the batch of its example for a number."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.reshape(1, 1, 8, 8))


def test_a_file_that_takes_one_example_has_a_fixed_batch(tmp_path: Path) -> None:
    """Later stages then give it one example a call."""
    inner = torchscript.load(by_the_tutorial(network(), tmp_path / "int8.pt"))
    own = save(OneAtATime(inner), tmp_path / "one.pt", torch.from_numpy(images(1)))
    assert build("onednn", own, tmp_path / "x").fixed_batch == 1


def job_of(network: Any, rows: int = 3) -> BuildJob:
    """A job on a few examples of that float network."""
    return BuildJob(network=Network(kind="torch", module=network), mode="static", recipe=Recipe(),
                    calibration=(images(rows),), training=None, folder=Path("unused"))  # fmt: skip


def quantized(x: torch.Tensor) -> torch.Tensor:
    """Values that nobody took back to floats."""
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)


@pytest.mark.parametrize(
    ("loaded", "network", "said"),
    [
        (lambda x: {"y": x}, lambda x: x, "own.pt returns dict, the float model a tensor: give an int8 file that was"),
        (quantized, lambda x: x, "own.pt returns quantized values; let it end with a DeQuantStub"),
        (lambda x: (x, x), lambda x: x, "own.pt returns 2 outputs, the float model as the suite calls it one: save"),
        (lambda x: (x, x), lambda x: (x, x), None),
        (lambda x: [x], lambda x: x, None),
        (lambda x: x, lambda x: (x, x), None),
    ],
)
def test_the_output_is_one_that_can_be_held_against_the_float_network(
    loaded: Any, network: Any, said: str | None
) -> None:
    """A tensor of floats, and no more outputs than that has."""
    if said is None:
        own_torchscript._require_outputs(job_of(network), loaded, Path("own.pt"))
        return
    with pytest.raises(BuildError) as raised:
        own_torchscript._require_outputs(job_of(network), loaded, Path("own.pt"))
    assert str(raised.value).startswith(said)


def refuse_two(x: torch.Tensor) -> torch.Tensor:
    """Takes one example."""
    if len(x) > 1:
        raise RuntimeError("shape '[1, 64]' is invalid")
    return x


def exhaust(x: torch.Tensor) -> torch.Tensor:
    """Finds no memory."""
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")


@pytest.mark.parametrize(
    ("loaded", "fixed"),
    [(lambda x: x, None), (lambda x: (x, x), None), (lambda x: x[:1], 1), (lambda x: x.sum(), 1), (refuse_two, 1)],
)
def test_a_file_that_answers_several_examples_with_as_many_rows_has_no_fixed_batch(
    loaded: Any, fixed: int | None
) -> None:
    """Else it is called with one at a time."""
    assert own_torchscript._find_fixed_batch(job_of(None), loaded) == fixed


def test_a_lack_of_memory_says_nothing_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the batch that it takes, nor of the engine that runs it."""
    with pytest.raises(RuntimeError, match="allocate memory"):
        own_torchscript._find_fixed_batch(job_of(None), exhaust)
    monkeypatch.setattr(own_torchscript, "_run_on", lambda *words: exhaust(torch.zeros(1)))
    with pytest.raises(RuntimeError, match="allocate memory"):
        own_torchscript._open(job_of(None), tmp_path / "own.pt", "onednn", ())
    with pytest.raises(RuntimeError, match="allocate memory"):
        own_torchscript._find_engine(tmp_path / "own.pt", "onednn", ())


@pytest.mark.parametrize("able", [None, "x86", "qnnpack"])
def test_every_other_engine_of_this_machine_is_tried(able: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that runs the file is named; none where none does."""
    tried: list[str] = []

    def run_on(engine: str, *rest: Any) -> None:
        tried.append(engine)
        if engine != able:
            raise RuntimeError("no kernel for it")

    class Quantized:
        supported_engines = ("none", "x86", "onednn", "qnnpack")

    monkeypatch.setattr(torch.backends, "quantized", Quantized)
    monkeypatch.setattr(own_torchscript, "_run_on", run_on)
    monkeypatch.setattr(torch_ao, "ENGINES", ("fbgemm", "x86", "onednn", "qnnpack"))
    assert own_torchscript._find_engine(Path("own.pt"), "onednn", ()) == able
    assert tried == (["x86"] if able == "x86" else ["x86", "qnnpack"])


@pytest.mark.parametrize(
    ("top", "channels", "said"),
    [
        (127, True, "activations in 7 bits, weights per channel, as in the default qconfig of fbgemm and x86"),
        (179, True, "activations in 7 bits, weights per channel, as in the default qconfig of fbgemm and x86"),
        (180, True, "activations in 8 bits, weights per channel, as in the default qconfig of onednn"),
        (255, False, "activations in 8 bits, weights per tensor, as in the default qconfig of qnnpack"),
        (100, False, "activations in 7 bits, weights per tensor, as in no engine's default qconfig"),
        (255, None, None),
        (None, None, None),
    ],
)
def test_the_scheme_is_told_by_the_levels_that_examples_reach(
    top: int | None, channels: bool | None, said: str | None, engine_put_back: None
) -> None:
    """The most active value of the middle layer, over all examples; nothing where no layer, or no weight, is seen."""
    torch_ao.set_engine("onednn")
    weight = (
        torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2, dtype=torch.int64), 0, torch.qint8)
        if channels
        else torch.quantize_per_tensor(torch.ones(2, 2), 1.0, 0, torch.qint8)
    )
    packed = torch.ops.quantized.linear_prepack(weight, None)

    def module(level: torch.Tensor) -> None:
        if top is not None:
            for reached in (0.0, top, 255.0):
                torch.quantize_per_tensor(level * reached, 1.0, 0, torch.quint8)
        if channels is not None:
            torch.ops.quantized.linear_dynamic(level, packed)

    examples = [(torch.zeros(2, 2),), (torch.ones(2, 2),), (0.5 * torch.ones(2, 2),)]
    assert own_torchscript._describe_scheme(module, examples) == said


def test_an_engine_that_cannot_run_a_file_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the case is skipped; it fails where the suite names that very engine, and where no engine runs it."""
    own = by_the_tutorial(network(), tmp_path / "int8.pt")
    run_on = own_torchscript._run_on

    def refuse(engine: str, *rest: Any) -> Any:
        if engine == "onednn":
            raise RuntimeError("no kernel for it")
        return run_on(engine, *rest)

    monkeypatch.setattr(own_torchscript, "_run_on", refuse)
    with pytest.raises(ModeImpossible, match=r"the engine onednn does not run int8.pt .*no kernel for it.*; \w+ does"):
        build("onednn", own, tmp_path / "x")
    with pytest.raises(BuildError, match="does not take this data") as raised:
        build("onednn", own, tmp_path / "y", engine="onednn")
    assert not isinstance(raised.value, ModeImpossible)


def test_no_engine_quantizes_a_torchscript_network() -> None:
    """What `explain` tries beside a file of the user's ends with the reason that a plan gives."""
    backend = registry.load("backend", "onednn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.trace(network(), torch.from_numpy(images(1)))
    job = BuildJob(
        network=Network(kind="torchscript", module=module),
        mode="static",
        recipe=backend.resolve("static", Recipe()),
        calibration=(images(),),
        training=None,
        folder=Path("/nowhere"),
    )
    with pytest.raises(BuildError, match="torch cannot quantize a TorchScript file; give the model's Python source"):
        backend.build(job)
