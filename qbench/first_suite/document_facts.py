"""What a suite must say of documents for a language model, read from what lies there."""

from __future__ import annotations

from pathlib import Path

from qbench.first_suite.model_facts import ModelFacts

METRIC = "token_flips"
_PATTERNS = ("*.jsonl", "*.txt", "*/*.txt")


def has_documents(path: Path, model: ModelFacts) -> bool:
    """Whether texts lie there, and the model takes whole numbers or does not tell."""
    if any(entry.is_float for entry in model.inputs):
        return False
    if path.is_file():
        return path.suffix.lower() == ".jsonl"
    return any(any(path.glob(pattern)) for pattern in _PATTERNS)


def explain_no_logits(model: ModelFacts) -> str | None:
    """Why the tokens that follow cannot judge the model's outputs; None where these may be logits of each position."""
    sizes = model.output_sizes
    if sizes and len(sizes) != 3:
        return f"the first output has {len(sizes)} axes, logits of each token have three: documents judge no others"
    return None
