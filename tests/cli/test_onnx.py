"""qbench onnx: what its commands print, where, what they write, and with which exit code."""

from __future__ import annotations

import json
import re
import sys
import zipfile

import numpy as np
import onnx
import onnx_networks
import pytest

from qbench.cli import main
from qbench.quant.onnx.formats import config


@pytest.fixture(name="onnx_command")
def onnx_command_(monkeypatch, capsys):
    """Runs ``qbench onnx`` in this process: exit code, standard output, standard error."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["qbench", "onnx", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    return command


@pytest.fixture(autouse=True)
def folder_(monkeypatch, tmp_path):
    """A folder with a model and data, which is the current one."""
    monkeypatch.chdir(tmp_path)
    onnx_networks.save(onnx_networks.residual_cnn(), tmp_path)
    values = np.random.default_rng(0).standard_normal((20, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "data.npz", image=values)


def test_each_step_says_what_it_wrote_and_what_comes_next(onnx_command):
    """The four commands in a row, copied from what each prints, end in models."""
    code, out, err = onnx_command("config", "model.onnx", "-o", "config.json", "--batch-num", 2)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "int8: Conv 3, Gemm 1",
        "int8 inputs of other nodes: Add 2, MaxPool 1, GlobalAveragePool 1",
        "wrote config.json; next: qbench onnx quantize model.onnx -c config.json",
    ]
    code, out, _ = onnx_command(*out.splitlines()[-1].partition("qbench onnx ")[2].split())
    assert code == 0
    assert out.splitlines()[-1] == (
        "wrote calibration.onnx and record.txt; next: qbench onnx calibrate calibration.onnx -r record.txt --data DATA"
    )
    code, out, err = onnx_command("calibrate", "calibration.onnx", "-r", "record.txt", "--data", "data.npz")
    assert code == 0
    assert out.splitlines() == [
        "calibrated on 20 examples in 2 batches: 8 entries",
        "wrote record.txt; next: qbench onnx save calibration.onnx -r record.txt -o PREFIX",
    ]
    assert "calibrate 2/2 batch 2" in err
    code, out, _ = onnx_command(
        "save", "calibration.onnx", "-r", "record.txt", "-o", "out/m", "--target", "onnxruntime", "--target", "ascend",
        "--form", "U8U8",
    )  # fmt: skip
    assert code == 0
    assert out.splitlines()[:4] == [
        "fake_quant: out/m_fake_quant_model.onnx",
        "onnxruntime: out/m_deploy_model.onnx",
        "ascend: out/m_ascend_model.onnx",
        "quant_json: out/m.quant.json",
    ]
    assert out.splitlines()[4].startswith("onnxruntime against fake_quant on 32 random examples: 100.0% of the pred")


def test_all_in_one_go(onnx_command, tmp_path):
    """One command from a model to its deploy model; without a terminal and quiet, nothing goes to standard error."""
    code, out, err = onnx_command("all", "model.onnx", "--data", "data.npz", "-o", "out/m", "--quiet")
    assert (code, err) == (0, "")
    assert "onnxruntime: out/m_deploy_model.onnx" in out
    assert "on 20 given examples" in out
    assert config.read(tmp_path / "out/m.config.json").batch_num == 1, "20 examples are one batch"
    assert json.loads((tmp_path / "out/m.quant.json").read_text())["version"] == 1


EVALUATOR = """
import numpy as np
import onnxruntime


def score(path):
    images = np.load("data.npz")["image"]
    return float(-np.abs(run(path, images) - run("model.onnx", images)).mean())


def run(path, images):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def words(path):
    return "good"
"""


def test_accuracy_finds_what_has_to_stay_float(onnx_command, tmp_path):
    """With your own score and a loss that int8 cannot keep, layers go back to float until it is kept; what it leaves is
    ready for save, and a second call scores nothing again."""
    (tmp_path / "mine.py").write_text(EVALUATOR)
    onnx_command("config", "model.onnx", "-o", "config.json", "--batch-num", 1)
    onnx_command("quantize", "model.onnx", "-c", "config.json")
    onnx_command("calibrate", "calibration.onnx", "--data", "data.npz")
    search = ("accuracy", "calibration.onnx", "--data", "data.npz", "--evaluate", "mine.py:score", "-o", "tuned")
    code, out, _ = onnx_command(*search, "--loss", 10)
    assert code == 0
    assert "within the loss" in out
    assert "every layer in int8" in out
    code, out, err = onnx_command(*search[:-1], "strict", "--loss", 0.003)
    assert code == 0
    assert "within the loss: " in out
    assert re.search(r"with \d+ layers? in float", out)
    assert re.search(r"^accuracy 1 score -?\d", err, re.MULTILINE)
    again = onnx_command(*search[:-1], "strict", "--loss", 0.003)
    assert again[1] == out
    assert "score" not in again[2]
    code, out, _ = onnx_command(*search[:-1], "none", "--loss", 1e-9)
    assert code == 0
    assert out.splitlines()[-1] == "no layer can be int8 within that loss: ship the float model, or allow more"
    code, out, _ = onnx_command("save", "strict/calibration.onnx", "-r", "strict/record.txt", "-o", "out/m")
    assert code == 0
    assert "onnxruntime: out/m_deploy_model.onnx" in out


@pytest.mark.parametrize(
    ("evaluator", "words", "exit_code"),
    [
        ("mine.py:words", "returned 'good', not a score", 1),
        ("mine.py:absent", "no 'absent' in this file; it has", 2),
        ("nope.py:score", "nope.py: cannot read this Python file: No such file or directory", 2),
        ("mine.py", "expected 'file.py:function', got 'mine.py'", 2),
    ],
)
def test_an_evaluator_that_gives_no_score_is_one_message(onnx_command, tmp_path, evaluator, words, exit_code):
    """What the person's function does wrong is told with its name; one that is not there is a wrong option."""
    (tmp_path / "mine.py").write_text(EVALUATOR)
    onnx_command("config", "model.onnx", "-o", "config.json", "--batch-num", 1)
    onnx_command("quantize", "model.onnx", "-c", "config.json")
    onnx_command("calibrate", "calibration.onnx", "--data", "data.npz")
    code, _, err = onnx_command(
        "accuracy", "calibration.onnx", "--data", "data.npz", "--evaluate", evaluator, "--loss", 1, "-o", "tuned"
    )
    assert code == exit_code
    assert words in err


def test_save_compares_on_data_where_it_is_given(onnx_command):
    """The parity is then that of the user's examples, of as many batches as hold enough of them; the words tell what
    was narrowed for the form."""
    onnx_command("config", "model.onnx", "--batch-num", 2)
    onnx_command("quantize", "model.onnx")
    onnx_command("calibrate", "calibration.onnx", "--data", "data.npz", "--batch-size", 10, "-q")
    code, out, _ = onnx_command("save", "calibration.onnx", "-o", "m", "--data", "data.npz", "--batch-size", 8)
    assert code == 0
    assert "on 16 given examples" in out
    code, out, _ = onnx_command("save", "calibration.onnx", "-o", "m", "--form", "U8S8-narrow")
    assert code == 0
    assert re.search(r"U8S8-narrow: \d+% of the channels of weights use fewer than 8 bits, in every model above", out)


def test_quantize_judges_with_data_where_it_is_given(onnx_command):
    """Data that the model does not take is refused before anything is written."""
    onnx_command("config", "model.onnx", "--batch-num", 2)
    code, _, _ = onnx_command("quantize", "model.onnx", "--data", "data.npz")
    assert code == 0
    np.savez("wrong.npz", image=np.zeros((4, 1, 16, 16), np.float32))
    code, out, err = onnx_command("quantize", "model.onnx", "-o", "other.onnx", "--data", "wrong.npz")
    assert (code, out) == (2, "")
    assert err.startswith("error: calibration data, batch 1: input image has shape [4, 1, 16, 16], the model takes")


def test_every_option_of_config_arrives_in_the_file(onnx_command, tmp_path):
    """Skipped layers, calibrator, weights, offset, balance, bias correction, fusion and batches."""
    code, _, err = onnx_command(
        "config", "model.onnx", "--skip-layers", "conv1,conv2", "--skip-types", "Gemm", "--batch-num", 7,
        "--calibrator", "hfmg", "--weights", "ada_quantize", "--symmetric", "--balance", 0.5, "--bias-correction",
        "--no-fusion", "-o", "c.json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    held = config.read(tmp_path / "c.json")
    assert [name for name, layer in held.layers.items() if layer.quant_enable] == ["conv3"]
    conv3 = held.layers["conv3"]
    assert (conv3.activation.algorithm, conv3.activation.asymmetric) == ("hfmg", False)
    assert conv3.weight.algorithm == "ada_quantize"
    assert (held.batch_num, held.balance, held.bias_correction, held.do_fusion) == (7, 0.5, True, False)


def test_a_preset_is_a_name_or_amct_s_simplified_configuration(onnx_command, tmp_path):
    """Options of the command line go before it."""
    (tmp_path / "quant.cfg").write_text("batch_num: 3 common_config { hfmg_quantize { num_of_bins: 1024 } }")
    assert onnx_command("config", "model.onnx", "--preset", "quant.cfg")[0] == 0
    held = config.read(tmp_path / "config.json")
    assert (held.batch_num, held.layers["conv1"].activation.options) == (3, {"num_of_bins": 1024})
    assert onnx_command("config", "model.onnx", "--preset", "accurate", "--calibrator", "minmax")[0] == 0
    held = config.read(tmp_path / "config.json")
    assert (held.layers["conv1"].activation.algorithm, held.bias_correction) == ("minmax", True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("config", "nothing.onnx"), 2, "error: nothing.onnx: no such file"),
        (("config", "data.npz"), 2, "error: data.npz: not a whole ONNX file"),
        (
            ("config", "model.onnx", "--skip-layers", "conv9"),
            2,
            "error: model.onnx: skip_layers: no layer named 'conv9'; ",
        ),
        (("config", "model.onnx", "--skip-layers", "*"), 2, "error: model.onnx: nothing is left to quantize"),
        (
            ("config", "model.onnx", "--preset", "amtc"),
            2,
            "error: --preset amtc: no such preset or file; presets: amct",
        ),
        (("config", "model.onnx", "--preset", "no.cfg"), 2, "error: no.cfg: no such simplified configuration"),
        (
            ("config", "model.onnx", "--calibrator", "minmx"),
            2,
            "error: no calibrator named 'minmx'; did you mean 'minm",
        ),
        (
            ("config", "model.onnx", "--weights", "arq"),
            2,
            "error: --weights arq: available: arq_quantize, ada_quantize",
        ),
        (("quantize", "model.onnx", "-c", "no.json"), 2, "error: no.json: no such configuration; qbench onnx config"),
        (("calibrate", "model.onnx", "--data", "data.npz"), 2, "error: model.onnx: not a calibration model"),
        (("save", "model.onnx", "-o", "m"), 2, "error: model.onnx: not a calibration model"),
        (
            ("save", "model.onnx", "-o", "m", "--target", "tpu"),
            2,
            "error: --target tpu: no such target; available: onnx",
        ),
        (
            ("save", "model.onnx", "-o", "m", "--form", "U8"),
            2,
            "error: --form U8: no such form; available: U8S8, U8S8-narrow, U8U8, S8S8",
        ),
        (("all", "model.onnx", "--data", "no", "-o", "m"), 2, "error: --data no: no such folder"),
        (
            ("all", "model.onnx", "--data", "data.npz", "-o", "m", "--set", "size"),
            2,
            "error: --set size: expected KEY=V",
        ),
        (
            ("all", "model.onnx", "--data", "data.npz", "-o", "m", "--set", "x\nerror: y"),
            2,
            "error: --set x error: y: expected KEY=VALUE",
        ),
        (
            ("all", "model.onnx", "--data", "data.npz", "-o", "m", "--set", "a=[1"),
            2,
            "error: --set a=[1: '[1' is no va",
        ),
        (
            ("all", "model.onnx", "--data", "data.npz", "-o", "m", "--batch-size", 21),
            2,
            "error: --data data.npz: 20 exa",
        ),
    ],
)
def test_what_a_user_can_cause_is_one_message(onnx_command, tmp_path, arguments, code, message):
    """No traceback, the exit code says usage (2) or failure (1), and nothing is left behind."""
    before = sorted(tmp_path.iterdir())
    ended, out, err = onnx_command(*arguments)
    assert (ended, out) == (code, "")
    assert err.startswith(message)
    assert sorted(tmp_path.iterdir()) == before


def test_without_a_command_the_commands_are_listed(onnx_command):
    """The help names the four steps and all."""
    _, out, err = onnx_command()
    for name in ("config", "quantize", "calibrate", "save", "all"):
        assert f"  {name} " in out + err


def test_a_damaged_npz_is_one_message_that_names_the_array(onnx_command, tmp_path):
    """No traceback of zipfile or numpy, whichever command reads the data."""
    (tmp_path / "none.npz").write_bytes(b"no archive")
    with zipfile.ZipFile(tmp_path / "short.npz", "w") as archive:
        archive.writestr("image.npy", (tmp_path / "data.npz").read_bytes()[:200])
    onnx_command("config", "model.onnx", "-o", "config.json", "--batch-num", 2)
    onnx_command("quantize", "model.onnx", "-c", "config.json", "-o", "calibration.onnx", "-r", "record.txt")
    for command in (("quantize", "model.onnx"), ("calibrate", "calibration.onnx"), ("all", "model.onnx", "-o", "m")):
        for file, what in (("none.npz", ""), ("short.npz", ": image")):
            code, out, err = onnx_command(*command, "--data", file)
            assert (code, out) == (2, "")
            assert err.startswith(f"error: --data {file}{what}: not an .npz file of arrays of numbers (")
            assert err.count("\n") == 1


def test_save_says_what_stays_float_for_ascend(onnx_command, tmp_path):
    """A convolution along one axis is int8 for ONNX Runtime and float for Ascend: whoever deploys it must know."""
    onnx_networks.save(onnx_networks.signal(), tmp_path)
    shape = [size.dim_value or 4 for size in onnx.load("model.onnx").graph.input[0].type.tensor_type.shape.dim]
    np.savez("signal.npz", signal=np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    code, out, err = onnx_command(
        "all", "model.onnx", "--data", "signal.npz", "-o", "m", "-q", "--target", "onnxruntime", "--target", "ascend"
    )
    assert (code, err) == (0, "")
    assert "float: conv: in the model for Ascend, whose compiler quantizes no convolution along one axis" in out
    _, out, _ = onnx_command("all", "model.onnx", "--data", "signal.npz", "-o", "m", "-q")
    assert "Ascend" not in out
