"""Files of this machine as magika takes them: Python's own library and the packages beside it, of many types.

An example is 2,048 numbers: 1,024 bytes from a file's beginning without white space in front, 1,024 from its end
without white space behind; what a short file lacks is 256. Source: ``config.min.json`` beside magika's model.
"""

import hashlib
import os
import sysconfig
from pathlib import Path

import numpy as np

SIDE, BLOCK, PADDING = 1024, 4096, 256
LEAST = 8  # bytes: of a shorter file magika does not ask its network
MOST = 60  # files of one suffix, so that Python's own do not outnumber all others
OTHERS = {"__pycache__", "site-packages", "dist-packages"}


def load(split):
    """Features (n, 2048) int32, no labels. Files of equal features count once; every other one is for ``test``."""
    examples = {}
    for path, name in _files():
        features = _features(path)
        if features is not None:
            examples.setdefault(features.tobytes(), (features, name))
    chosen = [*examples.values()][split == "test" :: 2]
    return {
        "inputs": np.stack([features for features, _ in chosen]),
        "labels": None,
        "ids": [name for _, name in chosen],
    }


load.preprocessing = {"to_float": False}


def _files():
    """(path, path below its root) of at most ``MOST`` files of each suffix, the same ones for the same packages."""
    ranked = {}
    for root in (Path(sysconfig.get_path(key)) for key in ("stdlib", "purelib")):
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in OTHERS]
            below = Path(folder).relative_to(root)
            for name in names:
                path = below / name
                rank = hashlib.sha256(str(path).encode()).digest()
                ranked.setdefault(path.suffix, []).append((rank, root / path, str(path)))
    drawn = [file for _, files in sorted(ranked.items()) for file in sorted(files)[:MOST]]
    return [(path, below) for _, path, below in drawn if path.is_file()]


def _features(path):
    """What the network reads of a file; None where magika does not ask it."""
    with path.open("rb") as stream:
        beginning = stream.read(BLOCK).lstrip()[:SIDE]
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - BLOCK))
        end = stream.read(BLOCK).rstrip()[-SIDE:]
    if len(beginning) < LEAST:
        return None
    features = np.full(2 * SIDE, PADDING, dtype=np.int32)
    features[: len(beginning)] = np.frombuffer(beginning, dtype=np.uint8)
    features[2 * SIDE - len(end) :] = np.frombuffer(end, dtype=np.uint8)
    return features
