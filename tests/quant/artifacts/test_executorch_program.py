"""What a call of an ExecuTorch program ran, matched with the products of its graph."""

from __future__ import annotations

import pytest

from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.executorch_program import Ran, mark_layers


@pytest.mark.parametrize(
    ("name", "multiplies", "int8"),
    [
        ("Convolution (NHWC, F32) IGEMM", True, False),
        ("Convolution (NHWC, QC8) IGEMM", True, True),
        ("Convolution (NHWC, QS8) GEMM", True, True),
        ("Deconvolution (NC, QS8, QC8W) Subconv2D", True, True),
        ("Fully Connected (NC, QS8, QC8W) GEMM", True, True),
        ("Fully Connected (NC, QD8, F32, QC8W) GEMM", True, True),
        ("Fully Connected (NC, F32, QC8W) GEMM", True, False),
        ("Batch Matrix Multiply (NC, F32) GEMM", True, False),
        ("Convert (NC)", False, False),
        ("Add (ND)", False, False),
        ("native_call_convolution.out", True, False),
        ("native_call_mean.out", False, False),
    ],
)
def test_a_kernel_is_int8_by_its_activations(name, multiplies, int8):
    """Weights in bytes alone are not enough, and what does not multiply is neither."""
    kernel = Ran(name=name, seconds=1e-6)
    assert (kernel.multiplies, kernel.int8) == (multiplies, int8)


PRODUCTS = (Layer(name="a", operator="xnnpack::convolution", macs=10), Layer(name="b", operator="aten::mm", macs=5))


def test_products_and_kernels_are_matched_in_order():
    """What does not multiply is passed over."""
    names = ("Convert (NC)", "Convolution (NHWC, QC8) IGEMM", "native_call_mean.out", "native_call_mm.out")
    layers, why = mark_layers(PRODUCTS, [Ran(name=name, seconds=0.0) for name in names])
    assert why is None
    assert [(layer.name, layer.macs, layer.precision) for layer in layers] == [("a", 10, "int8"), ("b", 5, "fp32")]


def test_another_number_of_kernels_is_no_coverage():
    """Which one ran for which layer is then not known, and nothing is claimed."""
    layers, why = mark_layers(PRODUCTS, [Ran(name="Convolution (NHWC, QC8) IGEMM", seconds=0.0)])
    assert layers == ()
    assert why == "the runtime tells 1 products of a call, and the program's graph has 2"


def test_kernels_of_the_other_library_are_no_coverage():
    """ExecuTorch's own products in place of XNNPACK's: of one part nothing was told, so that the count is chance."""
    layers, why = mark_layers(PRODUCTS, [Ran(name=f"native_call_{name}.out", seconds=0.0) for name in ("mm", "bmm")])
    assert (layers, why) == ((), "the runtime tells 2 products of a call, and the program's graph has 2")
