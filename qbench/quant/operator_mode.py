"""A mode in which every operator of torch that runs is seen."""

from __future__ import annotations

import sys

from qbench.torch_private import TorchDispatchMode


class OperatorMode(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to mypy here
    """Torch's mode, without torch's compiler: torch imports ``torch._dynamo`` at the first operator, which takes a
    child process a second or two, only so that the compiler leaves ``__torch_dispatch__`` alone."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether the compiler has to be kept off: where nothing has imported it, it compiles nothing."""
        return "torch._dynamo" in sys.modules
