"""A recipe: how a model becomes int8, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a variant is made. ``flow`` is ``fx`` or ``onnx`` (None for fp32); None elsewhere means that the
    mode has no such choice. ``skip_layers`` stay float. QAT: ``epochs``, ``learning_rate``, ``batch_size``."""

    flow: str | None = None
    calibrator: str | None = None
    per_channel: bool | None = None
    skip_layers: tuple[str, ...] = ()
    epochs: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    seed: int | None = None
