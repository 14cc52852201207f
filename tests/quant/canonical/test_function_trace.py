"""What a call of torch functions runs, as it was written."""

from __future__ import annotations

import torch

from qbench.quant.canonical.function_trace import trace_calls


def test_functions_are_recorded_by_name_with_their_very_tensors() -> None:
    """Properties by their own names; what is asked of a tensor without its values is no call."""
    x, y = torch.ones(2, 3), torch.ones(3, 2)

    def run() -> torch.Tensor:
        assert (x.shape, x.dim(), len(x), x.dtype, torch.numel(x)) == ((2, 3), 2, 2, torch.float32, 6)
        return torch.relu(torch.cat([x.T, y], dim=1)) + 1

    calls, result = trace_calls(run)
    assert [call.name for call in calls] == ["T", "cat", "relu", "add"]
    transposed, joined, clipped, added = calls
    assert added.result is result
    assert joined.takes()[1] is y
    assert joined.takes()[0] is transposed.result
    assert joined.kwargs == {"dim": 1}
    assert clipped.takes() == (joined.result,)
    assert (added.args[1], added.kwargs) == (1, {})
