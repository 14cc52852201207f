"""oneDNN's own log: which products ran, how much they multiply, in which format; what is proven by it."""

from __future__ import annotations

import pytest

from qbench.machine.half_floats import explain_missing
from qbench.quant.artifacts import onednn_log
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.onednn_log import Product, keep_proven, read_products

HEAD = "onednn_verbose,v1,primitive,exec,cpu"
BF16 = "src:bf16:a:blocked:acdb::f0 wei:bf16:ap:blocked:x::f0 bia:bf16:a:blocked:a::f0 dst:bf16:a:blocked:acdb::f0"


def line(
    kind: str, problem: str, *, implementation: str = "brg:avx512_core_bf16", types: str = BF16, alg: str = ""
) -> str:
    """A line of the log as oneDNN 3.12 writes it."""
    return f"{HEAD},{kind},{implementation},forward_inference,{types},attr-scratchpad:user,{alg},{problem},0.0041"


@pytest.mark.parametrize(
    ("kind", "problem", "alg", "macs"),
    [
        ("convolution", "mb2_ic3oc64_ih224oh112kh7sh2dh0ph3_iw224ow112kw7sw2dw0pw3", "alg:convolution_direct",
         2 * 64 * 112 * 112 * 3 * 49),
        ("convolution", "g16mb1_ic16oc16_ih16oh14kh3sh1dh0ph0_iw16ow14kw3sw1dw0pw0", "alg:convolution_direct",
         16 * 14 * 14 * 9),
        ("convolution", "mb1_ic2oc4_id8od6kd3sd1dd0pd0_ih8oh6kh3sh1dh0ph0_iw8ow6kw3sw1dw0pw0", "alg:x",
         4 * 216 * 2 * 27),
        ("deconvolution", "mb1_ic16oc8_ih14oh28kh2sh2dh0ph0_iw14ow28kw2sw2dw0pw0", "alg:deconvolution_direct",
         16 * 14 * 14 * 8 * 4),
        ("matmul", "8x676:676x32", "", 8 * 676 * 32),
        ("matmul", "1x4x8x16:2x4x16x32", "", 8 * 8 * 16 * 32),
        ("inner_product", "mb4ic512ih7iw7oc10", "", 4 * 512 * 49 * 10),
        ("rnn", "l1t8mb2sic16slc32dhc16dic16", "alg:vanilla_lstm direction:unidirectional_left2right",
         8 * 2 * 4 * 16 * 48),
        ("rnn", "l2t8mb1sic16slc16dhc16dic16", "alg:lbr_gru direction:bidirectional_concat", 2 * 2 * 8 * 3 * 16 * 32),
    ],
)  # fmt: skip
def test_the_work_of_every_kind_is_read_from_its_problem(kind: str, problem: str, alg: str, macs: int) -> None:
    """By the sizes that oneDNN writes of it."""
    assert read_products(line(kind, problem, alg=alg)) == (Product(kind=kind, macs=macs, precision="bf16"),)


def test_a_format_is_that_of_both_factors_in_a_kernel_for_it() -> None:
    """Of fp32, of mixed factors and of plain loops nothing is proven; fp16 is its own; reorders are no products."""
    mixed = BF16.replace("wei:bf16", "wei:f32")
    log = "\n".join(
        [
            line("matmul", "2x3:3x4"),
            line("matmul", "2x3:3x4", types=BF16.replace("bf16", "f16")),
            line("matmul", "2x3:3x4", types=BF16.replace("bf16", "f32")),
            line("matmul", "2x3:3x4", types=mixed),
            line("matmul", "2x3:3x4", implementation="ref:any"),
            line("matmul", "2x3:3x4", types=f"undef {BF16}"),
            line("reorder", "2x3"),
            "onednn_verbose,v1,info,cpu,isa:Intel AVX-512",
            "something else that the program printed",
        ]
    )
    assert [product.precision for product in read_products(log)] == ["bf16", "fp16", None, None, None, "bf16"]


@pytest.mark.parametrize(
    "text",
    [
        line("matmul", "2x3:3x*"),
        line("matmul", "2x3"),
        line("inner_product", "mb4"),
        line("rnn", "l1t8", alg="alg:vanilla_lstm"),
        line("rnn", "l1t8mb2sic16slc32dhc16dic16", alg="alg:unknown"),
        line("convolution", "strange"),
        f"{HEAD},matmul,brg",
        f"{HEAD},matmul",
    ],
)
def test_what_is_written_in_a_form_that_is_not_known_proves_nothing(text: str) -> None:
    """The share is then understated, never overstated, and no build fails by it."""
    assert read_products(text) == ()


def half(macs: int | None) -> Layer:
    """A layer whose tensors are bf16."""
    return Layer(name="layer", operator="aten::linear", macs=macs, precision="bf16")


def ran(macs: int, kind: str = "matmul", precision: str | None = "bf16") -> Product:
    """What the log has of a kernel."""
    return Product(kind=kind, macs=macs, precision=precision)  # type: ignore[arg-type]


def test_a_layer_is_proven_by_one_kernel_with_as_much_work() -> None:
    """Each kernel serves one layer; a layer of which nothing was seen ran in loops of torch's own."""
    layers = keep_proven([half(6), half(6), half(8), half(None)], [ran(8), ran(6), ran(9), ran(6, precision=None)])
    assert [layer.precision for layer in layers] == ["bf16", "fp32", "bf16", "fp32"]


def test_a_recurrent_layer_is_proven_by_kernels_that_have_its_work_together() -> None:
    """Its directions and depths are kernels of their own, in order; too few or too many prove nothing."""
    rnn = [ran(4, "rnn"), ran(4, "rnn"), ran(5, "rnn")]
    assert [layer.precision for layer in keep_proven([half(8), half(5)], rnn)] == ["bf16", "bf16"]
    assert [layer.precision for layer in keep_proven([half(9)], rnn)] == ["fp32"]
    assert [layer.precision for layer in keep_proven([half(99)], rnn)] == ["fp32"]
    assert [layer.precision for layer in keep_proven([half(4)], [ran(4, "rnn", "fp16")])] == ["fp32"]


@pytest.mark.skipif(explain_missing("bf16") is not None, reason=str(explain_missing("bf16")))
def test_torchs_own_log_is_read() -> None:
    """A convolution and a matrix product in bf16, as this torch's oneDNN writes of them; in fp32 neither is proven."""
    import torch

    torch.set_num_threads(1)
    for dtype, expected in ((torch.bfloat16, "bf16"), (torch.float32, None)):
        convolution = torch.nn.Conv2d(16, 32, 3).to(dtype)
        linear = torch.nn.Linear(64, 48).to(dtype)
        images, rows = torch.randn(1, 16, 10, 10).to(dtype), torch.randn(4, 64).to(dtype)

        def call(convolution=convolution, linear=linear, images=images, rows=rows):  # type: ignore[no-untyped-def]
            with torch.inference_mode():
                convolution(images)
                linear(rows)

        call()
        products = onednn_log.watch(call)
        proven = {product.macs for product in products if product.precision == "bf16"}
        assert proven == ({16 * 32 * 9 * 64, 4 * 64 * 48} if expected else set())
