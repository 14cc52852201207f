"""A network from a TorchScript file: ``source: {torchscript: model.pt}``."""

from __future__ import annotations

import warnings

from qbench.errors import ModelError, out_of_memory
from qbench.files import regular_file
from qbench.models.base import ModelReference, Network


def load(reference: ModelReference) -> Network:
    """The scripted module in eval mode, and its file; raises ``ModelError`` when it is not TorchScript."""
    import torch

    path = reference.path
    if path is None or not path.is_file():
        raise ModelError(f"{reference.name}: no TorchScript file at {path}")
    if reference.weights is not None or reference.args:
        raise ModelError(f"{reference.name}: a TorchScript file carries its weights; remove `weights` and `args`")
    try:
        with warnings.catch_warnings():
            # TorchScript is announced as deprecated; the user's file has this format, and nothing else reads it.
            for category in (DeprecationWarning, FutureWarning):  # of torch 2.13, and of 2.14
                warnings.filterwarnings("ignore", message=r"`torch\.jit\.load` is", category=category)
            with regular_file.open_file(path) as stream:
                module = torch.jit.load(stream, map_location="cpu")
    except (RuntimeError, ValueError, OSError) as error:
        if out_of_memory(error):
            raise
        reason = str(error).strip().split("\n", 1)[0]
        if "constants.pkl" in reason:  # torch says that the file is corrupted
            reason = (
                "it is a zip file of another kind, such as torch.save writes (a state dict goes under `weights` beside "
                "`source: {python: file.py:function}`)"
            )
        raise ModelError(
            f"{path}: not a TorchScript model: {reason}; write it with torch.jit.trace(model, example).save(path)"
        ) from error
    return Network(kind="torchscript", module=module.eval(), path=path)
