"""What qbench uses of torch that torch does not promise to keep: each name once, so that another torch is one file to
change. What Inductor does not promise stands in ``quant/artifacts/aoti.py`` and ``inductor_vectors.py``.

``tests/test_torch_private.py`` holds that no other module uses such names.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "BatchNorm",
    "OpOverload",
    "TorchDispatchMode",
    "make_per_channel_quantized_tensor",
    "make_per_tensor_quantized_tensor",
    "multiply_bytes",
    "pytree",
]

# Matrices of bytes -> one of 32-bit sums.
multiply_bytes = torch._int_mm
# Bytes, scales and zero points -> one of torch's int8 tensors, which torch means to give up.
make_per_channel_quantized_tensor = torch._make_per_channel_quantized_tensor
make_per_tensor_quantized_tensor = torch._make_per_tensor_quantized_tensor
