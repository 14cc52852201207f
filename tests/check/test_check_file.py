"""`qbench check`: the right cause first, for files as people bring them; nothing of a file ends the check itself."""

from __future__ import annotations

import random

import numpy as np
import onnx
import people_files
import pytest
import torch
from people_files import FILES, node, write
from short_measurements import PEAK

from qbench import registry
from qbench.check import core_peak, race, text
from qbench.check.check_file import check_file
from qbench.errors import CaseError, UsageError
from qbench.quant.artifacts import onnx_file


@pytest.fixture(autouse=True)
def _short_races(monkeypatch):
    monkeypatch.setattr(race, "PROCESSES", 2)
    monkeypatch.setattr(core_peak, "find_peak", lambda: PEAK)


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_the_cause_comes_first(make, tmp_path):
    """And a file without a fault has none; how fast it is on this very CPU is another matter in a test."""
    check = check_file(make(tmp_path / "model.onnx"), seconds=0.05)
    codes = [finding.code for finding in check.findings if not finding.code.endswith("elsewhere")]
    if FILES[make] is None:
        assert set(codes) <= {"slower", "conversions"}
    else:
        assert codes[0] == FILES[make]
    assert all("\n" not in line for line in text.list_lines(check))


def test_a_sound_file_is_held_against_its_own_fp32(tmp_path):
    """The same network without its rounding: as far from it as 8 bits are."""
    check = check_file(people_files.sound(tmp_path / "model.onnx"), seconds=0.05)
    (first, *_) = check.runtimes
    assert (first.runtime, first.int8_share) == ("onnxruntime", 1.0)
    assert check.race is not None
    assert check.race.low < check.race.ratio < check.race.high
    assert check.race.sqnr_db is not None
    assert 25 < check.race.sqnr_db < 60
    assert check.inputs == ("x 1x32x48x48 float32",)
    assert first.peak_share is not None
    assert f"{100 * first.peak_share:.0f} % of the core's peak" in "\n".join(text.list_lines(check))


def test_weights_beside_a_file_belong_to_it(tmp_path):
    """They are read, and counted; a location that leads out of the folder is not looked at."""
    whole = people_files.sound(tmp_path / "whole.onnx")
    model, apart = onnx.load(str(whole)), tmp_path / "apart.onnx"
    onnx.save(model, str(apart), save_as_external_data=True, location="apart.onnx.data", size_threshold=0)
    check = check_file(apart, seconds=0.05)
    assert {finding.code for finding in check.findings if not finding.code.endswith("elsewhere")} <= {
        "slower",
        "conversions",
    }
    assert check.bytes == apart.stat().st_size + (tmp_path / "apart.onnx.data").stat().st_size
    outside = onnx.load(str(apart), load_external_data=False)
    for tensor in outside.graph.initializer:
        tensor.external_data[0].value = f"../{tmp_path.name}/../{tmp_path.parent.name}/secret"
    (tmp_path / "outside.onnx").write_bytes(outside.SerializeToString())
    assert onnx_file.list_external(tmp_path / "outside.onnx") == set()


def test_the_fp32_that_is_named_is_raced(tmp_path):
    """By its name, and one that does not run is told."""
    file = people_files.sound(tmp_path / "model.onnx")
    named = check_file(file, against=people_files.weights_only(tmp_path / "float.onnx"), seconds=0.05)
    assert named.race is not None
    assert named.race.opponent == str(tmp_path / "float.onnx")
    broken = check_file(file, against=people_files.newer_ir(tmp_path / "newer.onnx"), seconds=0.05)
    assert broken.race is None
    assert broken.no_race == "the file has IR version 99, and this release reads up to 14"


def test_free_sizes_are_asked_for(tmp_path):
    """All of them at once; a free first axis is a batch of 1."""
    ids = (("ids", ["batch", "length"]), ("mask", ["batch", "length"]))
    kinds = dict.fromkeys(("ids", "mask", "y"), onnx.TensorProto.INT64)
    file = write(tmp_path / "m.onnx", [node("Add", ["ids", "mask"], "y")], {}, inputs=ids, kinds=kinds)
    with pytest.raises(UsageError, match=r"ids \(batch x length\), mask \(batch x length\) is not fixed .* ids=1x128"):
        check_file(file)
    check = check_file(file, shapes=("ids=1x8", "mask=1x8"))
    assert check.inputs == ("ids 1x8 int64", "mask 1x8 int64")
    free = (("x", ["batch", 3, 4, 4]),)
    assert check_file(write(tmp_path / "b.onnx", [node("Relu", ["x"], "y")], {}, inputs=free)).inputs == (
        "x 1x3x4x4 float32",
    )


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (("1,3",), "write it as name=1x3x224x224"),
        (("y=1x3",), "no input is called y; the inputs are x"),
        (("1x3x4x4",), "1x3x4x4 does not fit 1 x 32 x 48 x 48"),
        (("x=1x2", "x=1x3"), "there are two of them"),
        (("x=1x32x99999x99999",), "does not fit"),
    ],
)
def test_shapes_that_do_not_fit_are_told(shapes, words, tmp_path):
    """Before anything is loaded."""
    file = people_files.sound(tmp_path / "model.onnx")
    with pytest.raises(UsageError, match=words):
        check_file(file, shapes=shapes)


def test_files_of_no_known_format(tmp_path):
    """And those that are not there."""
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=r"'\.txt' is no format that is checked; known are \.onnx, \.pt, \.pth, \.ts"):
        check_file(tmp_path / "a.txt")
    with pytest.raises(UsageError, match=r"b\.onnx: no such file"):
        check_file(tmp_path / "b.onnx")


def test_torchscript_is_run_and_raced(tmp_path):
    """With the shape that a person names; an int8 file beside its fp32."""
    from qbench.quant.artifacts import tracing
    from qbench.quant.pytorch import torch_ao

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).eval()
    x = torch.randn(1, 256)
    with torch_ao.known_warnings(), tracing.known_warnings():
        torch.jit.save(torch.jit.trace(network, x), tmp_path / "fp32.pt")
        int8 = torch_ao.quantize_dynamic(network, {torch.nn.Linear})
        torch.jit.save(torch.jit.trace(int8, x), tmp_path / "int8.pt")
    with pytest.raises(UsageError, match=r"name their shapes, as in --shape 1x3x224x224"):
        check_file(tmp_path / "int8.pt")
    check = check_file(tmp_path / "int8.pt", against=tmp_path / "fp32.pt", shapes=("1x256",), seconds=0.05)
    assert check.race is not None
    assert "float" not in {finding.code for finding in check.findings}
    alone = check_file(tmp_path / "fp32.pt", shapes=("1x256",))
    assert [finding.code for finding in alone.findings] == ["float"]
    assert alone.no_race == "name its fp32 with --against"


def _save_package(module, x, file):
    from qbench.quant.artifacts import aoti

    aoti.compile_package(module, (x,), file)


def _save_program(module, x, file):
    from qbench.quant.artifacts import executorch_program

    executorch_program.lower(module, (x,), file)


def _save_ir(module, x, file):
    import openvino

    values = [parameter.detach().numpy() for parameter in module[0].parameters()]
    nodes = [node("Gemm", ["x", "w", "b"], "y", transB=1)]
    write(file.with_suffix(".onnx"), nodes, dict(zip("wb", values, strict=True)), inputs=[("x", [1, 64])])
    openvino.save_model(openvino.convert_model(file.with_suffix(".onnx")), file, compress_to_fp16=False)


@pytest.mark.parametrize(
    ("name", "backend", "save", "watched"),
    [
        ("model.pt2", "inductor", _save_package, False),
        ("model.pte", "executorch", _save_program, True),
        ("model.xml", "openvino", _save_ir, True),
    ],
)
def test_files_that_tell_their_inputs_to_a_runtime_alone(name, backend, save, watched, tmp_path):
    """Each runs and is raced; what multiplied is told where the runtime tells it, and not guessed elsewhere: a package
    that was not compiled to be watched is no fault, and not said to be float."""
    if (reason := registry.load("backend", backend).missing()) is not None:
        pytest.skip(reason)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 16)).eval()
    save(network, torch.randn(1, 64), tmp_path / name)
    check = check_file(tmp_path / name, against=tmp_path / name, shapes=("1x64",), seconds=0.05)
    assert check.race is not None
    assert check.sound or [finding.code for finding in check.findings if finding.severity == "fault"] == ["slower"]
    assert ("float" in {finding.code for finding in check.findings}) is watched
    (line,) = [line for line in text.list_lines(check) if "s a call" in line and "speed" not in line]
    assert ("its kernels do not show" in line) is not watched
    refused = check_file(tmp_path / name, shapes=("1x65",))
    assert [finding.code for finding in refused.findings] == ["refused"]


def test_examples_take_the_place_of_random_inputs(tmp_path, monkeypatch):
    """What is answered on them is told, and where it is far from fp32, the layer that begins it; files that tell their
    inputs to a runtime alone need no shape."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).random((80, 32, 48, 48), dtype=np.float32)
    np.savez("d.npz", inputs=values * 3, labels=np.arange(80) % 2)
    good = check_file(people_files.sound(tmp_path / "good.onnx"), data="d.npz", seconds=0.05)
    assert good.change is not None
    assert good.change.sqnr_db > 20
    assert "far-on-data" not in {finding.code for finding in good.findings}
    np.savez("large.npz", inputs=values * 1e4, labels=np.arange(80) % 2)
    far = check_file(tmp_path / "good.onnx", data="large.npz", seconds=0.05)
    (finding,) = (finding for finding in far.findings if finding.code == "far-on-data")
    assert finding.severity == "fault"
    assert "most of it begins at the input x: in its range of bytes it is" in finding.text
    assert any(line.startswith("data: ") for line in text.list_lines(far))
    with pytest.raises(UsageError, match="--data says what the inputs are: leave --shape and --constant out"):
        check_file(tmp_path / "good.onnx", data="d.npz", constants=("x=1",))
    from qbench.quant.artifacts import tracing

    with tracing.known_warnings():
        torch.jit.save(torch.jit.trace(torch.nn.Conv2d(32, 2, 3), torch.randn(1, 32, 48, 48)), "conv.pt")
    traced = check_file(tmp_path / "conv.pt", data="d.npz", against=tmp_path / "conv.pt", seconds=0.05)
    assert traced.change is not None
    assert (traced.change.flips, traced.change.right) == (None, None)
    assert traced.inputs == ("input 0 1x32x48x48 float32",)


def test_another_runtime_that_is_much_faster_is_named():
    """By the calls that were timed, in no confident tone; not one that is hardly faster, or does not run it."""
    from qbench.check.check_file import _find_faster
    from qbench.check.finding import RuntimeCheck
    from qbench.quant.artifacts.node_profile import CallProfile

    def run(name, seconds):
        profile = None if seconds is None else CallProfile(nodes=(), call_seconds=seconds, watched_seconds=seconds)
        return RuntimeCheck(runtime=name, version="1", profile=profile)

    first = run("onnxruntime", 2e-3)
    (finding,) = _find_faster([first, run("openvino", 1e-3)], first)
    assert (finding.severity, finding.code) == ("note", "faster-elsewhere")
    assert finding.text.startswith(
        "a call takes 1.00 ms on OpenVINO, 2.00 ms on ONNX Runtime: timed one after the other"
    )
    for seconds in (1.5e-3, 3e-3, None):
        assert not list(_find_faster([first, run("openvino", seconds)], first))


def test_a_float_file_says_that_it_compares_nothing(tmp_path, monkeypatch):
    """Neither speed nor answers; beside another file that is named it is raced, and answers the data."""
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", inputs=np.random.default_rng(0).random((20, 32, 48, 48), dtype=np.float32))
    file = people_files.float_model(tmp_path / "float.onnx")
    alone = check_file(file, data="d.npz")
    assert (alone.race, alone.change) == (None, None)
    assert (
        "speed and answers on the data: not compared with fp32: nothing in it is quantized; name what to hold it "
        "against with --against"
    ) in list(text.list_lines(alone))
    beside = check_file(file, data="d.npz", against=file, seconds=0.05)
    assert beside.race is not None
    assert beside.change is not None
    assert [finding.code for finding in beside.findings if finding.code != "slower"] == ["float"]


def test_a_race_that_was_run_stays_where_answers_fail(tmp_path, monkeypatch):
    """What is known is told."""

    def fail(*_, **__):
        raise CaseError("it took longer than 120 s")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("qbench.check.beside_fp32._compare_on_data", fail)
    np.savez("d.npz", inputs=np.random.default_rng(0).random((20, 32, 48, 48), dtype=np.float32))
    check = check_file(people_files.sound(tmp_path / "m.onnx"), data="d.npz", seconds=0.05)
    assert check.race is not None
    (finding,) = (finding for finding in check.findings if finding.code == "no-answers")
    assert finding.text == "its answers on the data could not be compared: it took longer than 120 s"


def test_a_pickle_is_not_opened(tmp_path):
    """Loading one runs code; that it is one is told before its shapes are asked for."""

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save(Trap(), tmp_path / "model.pt")
    check = check_file(tmp_path / "model.pt")
    assert not (tmp_path / "ran").exists()
    assert not check.sound
    assert check.findings[0].text.startswith("this is what torch.save writes, no TorchScript: a pickle runs code")


def test_damaged_files_end_with_a_message(tmp_path):
    """Whatever byte of them is another; a runtime that dies of one does so in a process of its own."""
    rng, file = random.Random(0), tmp_path / "model.onnx"
    for make in (people_files.sound, people_files.joined, people_files.dynamic_matmul):
        whole = make(file).read_bytes()
        for _ in range(3):
            damaged = bytearray(whole)
            for _ in range(3):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            file.write_bytes(bytes(damaged))
            try:
                check = check_file(file, seconds=0.01)
            except UsageError as error:
                assert "--shape" in str(error)  # noqa: PT017  # an input's size may have become free
            else:
                assert list(text.list_lines(check))


def test_json_holds_what_the_lines_hold(tmp_path):
    """Shares, times and findings by their codes."""
    import json

    data = json.loads(text.as_json(check_file(people_files.folded(tmp_path / "model.onnx"), seconds=0.05)))
    assert data["sound"] is False
    assert data["findings"][0]["code"] == "folded"
    assert data["runtimes"][0]["int8_share"] < 0.5
    assert data["runtimes"][0]["layers"][0]["precision"] == "fp32"
    assert np.isfinite(data["race"]["ratio"])


def test_the_command_ends_with_what_was_found(tmp_path, monkeypatch, capsys):
    """0 for a sound file, 1 for a fault, 2 for what a person has to say otherwise."""
    import sys

    from qbench.cli import main

    people_files.table_only(tmp_path / "table.onnx")
    people_files.float_model(tmp_path / "float.onnx")
    codes = {}
    for name in ("float.onnx", "table.onnx", "none.onnx"):
        monkeypatch.setattr(sys, "argv", ["qbench", "check", str(tmp_path / name)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        codes[name] = ended.value.code
    assert codes == {"float.onnx": 0, "table.onnx": 1, "none.onnx": 2}
    told = capsys.readouterr()
    assert "fault: only 1 lookup table(s) are in int8, and no product is" in told.out
    assert told.err.endswith("none.onnx: no such file\n")
