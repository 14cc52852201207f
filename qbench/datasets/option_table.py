"""The options of each built-in data set and the splits that some always have, for a suite that is only read.

The loaders themselves import numpy and open files; a test keeps this table equal to theirs.
"""

from __future__ import annotations

_PREPROCESSING = ("scale", "mean", "std")
_APART = ("seed", "test_share")
_TOKENS = ("tokenizer", "length", "tokens", "pad")
_IMAGES = ("size", "resize", "channels", "layout", "order", *_PREPROCESSING)
_FOLDER = (*_IMAGES, *_APART, "classes")

OPTIONS: dict[str, tuple[str, ...]] = {
    "digits": (),
    "mnist": (),
    "fashion-mnist": (),
    "cifar-10": (),
    "imagenet": _FOLDER,
    "npz": ("classes", *_PREPROCESSING, "to_float", "stored_layout", "test_share", "seed"),
    "image-folder": _FOLDER,
    "idx": ("classes", *_PREPROCESSING),
    "sentiment": (*_TOKENS, *_APART),
    "csv": ("text", "label", "split", "classes", "delimiter", "encoding", *_TOKENS, *_APART),
    "huggingface": (
        *("text", "image", "inputs", "label", "config", "revision", "classes"),
        *(*_APART, *_TOKENS, *_IMAGES, "to_float"),
    ),
    "python": ("args", "classes", *_PREPROCESSING, "to_float"),
}
TRAIN_AND_TEST = ("train", "test")
SPLITS: dict[str, tuple[str, ...]] = dict.fromkeys(("digits", "mnist", "fashion-mnist", "cifar-10"), TRAIN_AND_TEST)
