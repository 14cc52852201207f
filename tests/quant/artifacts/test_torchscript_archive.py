"""Rules of qbench/quant/artifacts/torchscript_archive.py: int8 is told by an archive's text, no pickle is opened."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import ModelError
from qbench.quant.artifacts import torchscript_archive
from qbench.quant.pytorch import torch_ao


def quantized(engine: str = "fbgemm") -> tuple[nn.Module, torch.Tensor]:
    """A convolution and a linear layer, by torch's own FX flow."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)).eval()
    example = torch.rand(8, 1, 8, 8)
    torch_ao.set_engine(engine)
    with torch_ao.known_warnings():
        prepared = torch_ao.prepare_fx(net, torch_ao.get_default_qconfig_mapping(engine), (example,))
        prepared(example)
        return torch_ao.convert_fx(prepared), example[:1]


def save(module: nn.Module, example: torch.Tensor, file: Path, form: str = "traced") -> Path:
    """The module as a TorchScript file: traced, scripted or scripted and frozen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script: Any = torch.jit.trace(module, example) if form == "traced" else torch.jit.script(module)
        torch.jit.save(torch.jit.freeze(script) if form == "frozen" else script, str(file))
    return file


@pytest.mark.parametrize("form", ["traced", "scripted", "frozen"])
def test_an_int8_archive_is_told_by_its_operators(form: str, tmp_path: Path) -> None:
    """Its ranges are fixed; those that pack weights say nothing, since a float network may have none of them."""
    file = save(*quantized(), tmp_path / "int8.pt", form)
    operators = torchscript_archive.list_operators(file)
    assert {"quantized::conv2d_relu", "quantized::linear", "aten::quantize_per_tensor"} <= set(operators)
    assert not any("pack" in name for name in operators)
    assert torchscript_archive.find_range_at_run_time(operators) is None
    assert not torchscript_archive.is_simulation(operators)


@pytest.mark.parametrize("form", ["traced", "scripted", "frozen"])
def test_a_float_archive_has_none(form: str, tmp_path: Path) -> None:
    """Whatever its form."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    assert torchscript_archive.list_operators(save(net, torch.rand(1, 1, 8, 8), tmp_path / "f.pt", form)) == ()


@pytest.mark.parametrize(("layer", "size"), [(nn.Linear, 4), (nn.LSTM, 4), (nn.GRU, 4)])
def test_dynamic_operators_choose_ranges_as_they_run(layer: type[nn.Module], size: int, tmp_path: Path) -> None:
    """Linear and recurrent layers."""
    with torch_ao.known_warnings():
        net = torch_ao.quantize_dynamic(nn.Sequential(layer(size, 4)).eval(), {layer}, torch.qint8)
    file = save(net, torch.rand(1, 3, size), tmp_path / "d.pt", "scripted")
    assert torchscript_archive.find_range_at_run_time(torchscript_archive.list_operators(file)) is not None


def test_fake_quantization_is_a_simulation(tmp_path: Path) -> None:
    """It computes in float."""
    file = save(torch_ao.FusedMovingAvgObsFakeQuantize().eval(), torch.rand(1, 4), tmp_path / "fake.pt")
    assert torchscript_archive.is_simulation(torchscript_archive.list_operators(file))


class Marks:
    """Leaves a mark where somebody unpickles it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def test_a_pickle_is_refused_and_never_opened(tmp_path: Path) -> None:
    """As torch.save writes it, in its older form, and bare: each is named for what it is, and no code of it runs."""
    mark = tmp_path / "mark"
    torch.save(Marks(mark), tmp_path / "new.pt")
    torch.save(Marks(mark), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(Marks(mark)))
    for name in ("new.pt", "old.pt", "bare.pt"):
        with pytest.raises(ModelError, match=r"pickle.*runs code when it is read.*save it with torch.jit.script"):
            torchscript_archive.list_operators(tmp_path / name)
    assert not mark.exists()


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    """Text, an archive that is cut, one of another kind, one of torch.export, one whose code has no end."""
    whole = save(*quantized(), tmp_path / "whole.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.pt").write_text("no network")
    for name, entry, size in (
        ("other.pt", "readme", 1),
        ("exported.pt", "m/archive_format", 1),
        ("bomb.pt", "m/code/a.py", torchscript_archive.MOST_BYTES + 1),
    ):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(entry, bytes(size))
            if name == "bomb.pt":
                archive.writestr("m/constants.pkl", b"")
    for name, said in {
        "cut.pt": "not a TorchScript archive",
        "text.pt": "not a TorchScript archive: File is not a zip file",
        "other.pt": "this zip file is no TorchScript archive",
        "exported.pt": "this is what torch.export.save writes",
        "bomb.pt": "its code is larger than",
        "gone.pt": "cannot read this TorchScript archive",
    }.items():
        with pytest.raises(ModelError, match=f"{name}: {said}"):
            torchscript_archive.list_operators(tmp_path / name)
