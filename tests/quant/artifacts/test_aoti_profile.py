"""Which kernels of an AOTInductor package do what. What one really runs is in tests/backends/test_inductor.py, which
compiles one."""

from __future__ import annotations

import pytest

from qbench.quant.artifacts.aoti_profile import _is_kernel, _kind


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("aoti_torch_cpu__qconv_pointwise_tensor", "int8 product"),
        ("aoti_torch_cpu__qlinear_pointwise_tensor", "int8 product"),
        ("aoti_torch_cpu_mkldnn__convolution_pointwise", "float product"),
        ("aoti_torch_cpu__linear_pointwise", "float product"),
        ("aoti_torch_cpu__mkl_linear", "float product"),
        ("aoti_torch_cpu_addmm_out", "float product"),
        ("aoti_torch_cpu_max_pool2d", "other"),
        ("graph_0_cpp_fused_quantize_per_tensor_0", "conversion"),
        ("graph_0_cpp_fused_dequantize_per_tensor_quantize_per_tensor_3", "conversion"),
        ("graph_0_cpp_fused_dequantize_per_tensor_sin_quantize_per_tensor_3", "other"),
        ("graph_0_cpp_fused_relu_0", "other"),
    ],
)
def test_kernels_are_sorted_by_their_names(kernel, kind):
    """Generated code that does more than convert is no conversion."""
    assert _is_kernel(kernel)
    assert _kind(kernel) == kind


def test_what_a_kernel_calls_is_none_of_its_own():
    """Allocations and the like count as the kernel's."""
    assert not _is_kernel("aten::empty")
