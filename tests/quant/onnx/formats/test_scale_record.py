"""record.txt: protobuf text in AMCT's form, read and written; every error that a record can hold."""

from __future__ import annotations

import os

import numpy as np
import onnx_networks
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import UsageError
from qbench.quant.onnx import sites
from qbench.quant.onnx.formats import config, scale_record
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales

# As a person writes it from AMCT's manual: fields of several releases, lists and blocks in both notations.
AMCT = """
# calibrated on two batches
record {
  key: "conv1"
  value {
    scale_d: 0.0798481479
    offset_d: 1
    scale_w: 0.00297622895
    scale_w: 0.0031
    offset_w: 0
    offset_w: 0
    shift_bit: 1
    shift_bit: 1
    skip_fusion: true
    dst_type: "INT8"
  }
}
record: < key: 'layer1/avgpool', value: < scale_d: 1.5e-2, offset_d: -128 >; >
record {
  key: "layer1/add:1"
  value { scale_d: 0.5 is_tensor_quantize: true act_type: 'INT8' tensor_balance_factor: [1.5, 2.0] }
}
"""

positive = st.floats(2.0**-22, 2.0**22, width=32)  # what AMCT documents
scales = st.builds(
    lambda scale_d, offset_d, scale_w, balance: Scales(
        scale_d=scale_d, offset_d=offset_d, scale_w=scale_w, offset_w=(0,) * len(scale_w), balance=balance
    ),
    positive,
    st.integers(-128, 127),
    st.lists(positive, max_size=4).map(tuple),
    st.lists(positive, max_size=3).map(tuple),
)
names = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=20)


def write_entry(text):
    return f'record {{ key: "conv1" value {{ {text} }} }}'


def test_a_record_written_by_hand_is_read_as_amct_means_it():
    """Every field of AMCT's releases is understood; an offset that is not written is 0."""
    content = scale_record.loads(AMCT)
    assert list(content) == ["conv1", "layer1/avgpool", "layer1/add:1"]
    assert content["conv1"].scale_d == pytest.approx(0.0798481479, rel=1e-7)
    assert content["conv1"].scale_w == (np.float32(0.00297622895), np.float32(0.0031))
    assert (content["conv1"].offset_d, content["conv1"].offset_w) == (1, (0, 0))
    assert content["layer1/avgpool"] == Scales(scale_d=float(np.float32(0.015)), offset_d=-128)
    assert content["layer1/add:1"] == Scales(scale_d=0.5, offset_d=0, balance=(1.5, 2.0))


def test_the_text_is_amct_s():
    """What is written is the form that AMCT's manual shows."""
    content = {"conv1": Scales(scale_d=0.0078125, offset_d=-5, scale_w=(0.1, 0.25), offset_w=(0, 0))}
    assert scale_record.dumps(content) == (
        'record {\n  key: "conv1"\n  value {\n    scale_d: 0.0078125\n    offset_d: -5\n    scale_w: 0.1\n'
        '    scale_w: 0.25\n    offset_w: 0\n    offset_w: 0\n    dst_type: "INT8"\n  }\n}\n'
    )


@given(st.dictionaries(names, scales, min_size=1, max_size=3))
def test_what_is_written_is_read_back(held):
    """Text and record are the same to the last bit of a float32, whatever the names hold."""
    assert scale_record.loads(scale_record.dumps(held)) == held


def test_a_record_of_weights_alone_can_be_read():
    """After the quantize step nothing is known of the activations yet."""
    assert scale_record.loads(write_entry("scale_w: 0.5 offset_w: 0"))["conv1"].scale_d is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "r.txt: an empty record; run qbench onnx quantize and calibrate again"),
        ("# nothing\n", "r.txt: an empty record; run qbench onnx quantize and calibrate again"),
        (write_entry("scale_d: 0"), "r.txt: 'conv1': scale_d 0 is not a positive number; calibrate again"),
        (write_entry("scale_d: -0.5"), "r.txt: 'conv1': scale_d -0.5 is not a positive number; calibrate again"),
        (write_entry("scale_d: nan"), "r.txt: 'conv1': scale_d nan is not a positive number; calibrate again"),
        (write_entry("scale_d: inf"), "r.txt: 'conv1': scale_d inf is not a positive number; calibrate again"),
        (write_entry("offset_d: 128"), "r.txt: 'conv1': offset_d 128 is outside [-128, 127]; calibrate again"),
        (write_entry("offset_d: -129"), "r.txt: 'conv1': offset_d -129 is outside [-128, 127]; calibrate again"),
        (
            write_entry("scale_w: 1 offset_w: 3"),
            "r.txt: 'conv1': offset_w 3 is not 0; weights are quantized symmetrically",
        ),
        (
            write_entry("scale_w: [1, 2, 0]"),
            "r.txt: 'conv1': scale_w[2] 0 is not a positive number; quantize the model again",
        ),
        (
            write_entry("scale_w: [1, 2, 3] offset_w: [0, 0]"),
            "r.txt: 'conv1': 2 offset_w for 3 scale_w; give one for each, or none",
        ),
        (write_entry('dst_type: "INT4"'), "r.txt: 'conv1': dst_type 'INT4'; qbench quantizes to INT8"),
        (write_entry("cluster: 3"), "r.txt: 'conv1': cluster: non-uniform quantization; qbench quantizes uniformly"),
        ("record { value { scale_d: 1 } }", "r.txt: record 1: no key; give it the name of its layer"),
        (write_entry("scale_d: 1") * 2, "r.txt: 'conv1': stands there twice; keep one"),
    ],
)
def test_what_no_record_can_hold_is_refused(text, message):
    """Numbers that no quantization has are named with their layer and what to do."""
    with pytest.raises(UsageError) as caught:
        scale_record.loads(text, name="r.txt")
    assert str(caught.value) == message


def test_every_problem_is_told_at_once():
    """A person mends a file once, not once for each problem."""
    text = write_entry("scale_d: 0 offset_d: 500") + write_entry("scale_d: 1 offset_w: 1")
    with pytest.raises(UsageError) as caught:
        scale_record.loads(text)
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize(
    "text", [write_entry("scale_d: 1")[:-4], write_entry("scale_q: 1"), "{", 'record { key: "a" key: "b" }', "\0"]
)
def test_a_text_that_is_no_record_is_refused_with_its_place(text):
    """A truncated or foreign file names line and column."""
    with pytest.raises(UsageError, match=r"^r\.txt:\d+:\d+: not protobuf text"):
        scale_record.loads(text, name="r.txt")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o640), (0o077, 0o600)])
def test_files_are_written_whole(tmp_path, umask, mode):
    """A record is for its owner and group, by a stricter umask for its owner alone, and nothing is left beside it."""
    file = tmp_path / "new" / "record.txt"
    before = os.umask(umask)
    try:
        scale_record.write({"a": Scales(scale_d=1.0, offset_d=0)}, file)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == mode
    assert [entry.name for entry in file.parent.iterdir()] == ["record.txt"]
    assert scale_record.read(file) == {"a": Scales(scale_d=1.0, offset_d=0)}


@pytest.mark.parametrize(("content", "what"), [(None, "no such record"), (b"\xff\xfe\x00", "not a record file")])
def test_a_file_that_cannot_be_read_says_so(tmp_path, content, what):
    """A missing and a binary file are two messages."""
    if content is not None:
        (tmp_path / "record.txt").write_bytes(content)
    with pytest.raises(UsageError, match=what):
        scale_record.read(tmp_path / "record.txt")


@pytest.fixture(name="network", scope="module")
def network_():
    graph = Graph(onnx_networks.depthwise())
    actual = sites.find(graph, config.default(graph))
    complete = {key: Scales(scale_d=1.0, offset_d=0) for site in actual.activations for key in site.keys}
    for site in actual.weights:
        count = len(graph.constant(site.tensor))
        complete[site.layer] = Scales(scale_d=1.0, offset_d=0, scale_w=(1.0,) * count, offset_w=(0,) * count)
    return graph, actual, complete


def require(network, held):
    graph, actual, _ = network
    scale_record.require_complete(held, graph, actual, file="r.txt", batch_num=4)


def test_a_complete_record_is_accepted(network):
    """One scale for each activation and each channel is all that is needed."""
    require(network, network[2])


def test_a_missing_activation_names_batch_num(network):
    """Without scale_d the calibration did not get as far as batch_num."""
    content = network[2] | {"stem_conv": Scales(scale_w=network[2]["stem_conv"].scale_w)}
    with pytest.raises(
        UsageError, match=r"^r\.txt: 'stem_conv': no scale_d: calibration saw fewer than batch_num batch"
    ):
        require(network, content)


def test_a_wrong_number_of_weight_scales_is_refused(network):
    """A record of a narrower network does not fit."""
    content = network[2] | {"stem_conv": Scales(scale_d=1.0, offset_d=0, scale_w=(1.0, 1.0))}
    with pytest.raises(
        UsageError, match=r"'stem_conv': 2 scale_w where its weight needs \d+; quantize the model again"
    ):
        require(network, content)


def test_a_record_of_another_model_is_refused(network):
    """A key that the model does not have is named with the nearest one."""
    with pytest.raises(UsageError, match=r"'stem_conf': nothing of that name .* did you mean 'stem_conv'\?"):
        require(network, network[2] | {"stem_conf": Scales(scale_d=1.0, offset_d=0)})


def test_names_are_written_as_they_are():
    """In UTF-8, where a reader finds them."""
    assert 'key: "gefühl"' in scale_record.dumps({"gefühl": Scales(scale_d=1.0, offset_d=0)})


LEAST, MOST = f"{scale_record.LEAST_SCALE:.3g}", f"{1 / scale_record.LEAST_SCALE:.3g}"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("scale_w: 1e30 scale_w: 1", [f"scale_w[0] 1e+30 is outside [{LEAST}, {MOST}]; quantize the model again"]),
        ("scale_w: 1 scale_w: 1e30", [f"scale_w[1] 1e+30 is outside [{LEAST}, {MOST}]; quantize the model again"]),
        ("scale_w: -1 scale_w: 1e30", ["scale_w[0] -1 is not a positive number; quantize the model again"]),
        ("scale_w: 1 scale_w: 0", ["scale_w[1] 0 is not a positive number; quantize the model again"]),
        ("scale_d: 1e30", [f"scale_d 1e+30 is outside [{LEAST}, {MOST}]; calibrate again"]),
        ("scale_d: 0", ["scale_d 0 is not a positive number; calibrate again"]),
        ("scale_w: 1 shift_bit: 1 shift_bit: 99", ["shift_bit 99 is outside [1, 16]; an accumulator has 32 bits"]),
        ("scale_w: 1 shift_bit: 0", ["shift_bit 0 is outside [1, 16]; an accumulator has 32 bits"]),
        ("scale_w: 1 shift_bit: 16", []),
        ("scale_w: 1 offset_w: 0 offset_w: 3", ["offset_w 3 is not 0; weights are quantized symmetrically",
                                                "2 offset_w for 1 scale_w; give one for each, or none"]),
        ("scale_w: 1 scale_w: 1 offset_w: 0", []),
        ('scale_w: 1 dst_type: "INT4"', ["dst_type 'INT4'; qbench quantizes to INT8"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_entry_is_told_by_its_place(text, problems):
    """The first of several, with the range and what to do."""
    if not problems:
        assert scale_record.loads(write_entry(text)).keys() == {"conv1"}
        return
    with pytest.raises(UsageError) as refused:
        scale_record.loads(write_entry(text), name="r.txt")
    assert str(refused.value).splitlines() == [f"r.txt: 'conv1': {problem}" for problem in problems]


def test_an_offset_is_one_of_a_scale():
    """Without a scale there is none, as AMCT writes entries of weights alone."""
    assert scale_record.loads(write_entry("offset_d: 5 scale_w: 1"))["conv1"].offset_d is None
    assert scale_record.loads(write_entry("scale_d: 1 offset_d: 5"))["conv1"].offset_d == 5
