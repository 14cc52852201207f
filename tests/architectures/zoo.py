"""The zoo: small networks as users bring them (270 to 73,000 parameters, half of them fewer than 10,000), and made-up
examples for each.

A family is a module beside this one with a table ``NETWORKS``: name -> (factory, the kinds of its inputs, and where it
needs them the keys beside its name in a suite). One of files has a function ``source_of(network)`` in their place; one
of deep networks has a ``NORM_BIAS``, the mean of BatchNorm's biases, else 0: at 1 most of what ReLU reads is above 0,
and noise does not grow from layer to layer, as it does with random weights and hardly with trained ones.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

FAMILIES = ("images", "maps", "attention", "sequences", "tables", "untraced")
EXAMPLES = {"train": 64, "test": 32}
_SEEDS = {"train": 1, "test": 2}


def family_of(network: str) -> str:
    """The module that has a network."""
    for family in FAMILIES:
        if network in importlib.import_module(family).NETWORKS:
            return family
    raise KeyError(network)


def names() -> list[str]:
    """All networks, by family."""
    return [name for family in FAMILIES for name in importlib.import_module(family).NETWORKS]


def keys_of(network: str) -> str:
    """The keys of a model in a suite beside its name, as YAML."""
    module = importlib.import_module(family_of(network))
    source = f'{{python: "zoo.py:build", args: {{family: {module.__name__}, network: {network}}}}}'
    if hasattr(module, "source_of"):
        source = module.source_of(network)
    more = dict(*module.NETWORKS[network][2:])
    return ", ".join(f"{key}: {value}" for key, value in {"source": source, **more}.items())


def build(family: str, network: str):
    """A network in eval mode whose BatchNorm has seen examples: fresh statistics (0 and 1) would fold to nothing.
    Layers whose weights begin as zeros (a classifier of timm's) have others, or there were nothing to compare."""
    import torch

    table = importlib.import_module(family)
    factory, kinds, *_ = table.NETWORKS[network]
    module = factory().eval()
    for part in module.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.Conv2d) and not part.weight.any():
            torch.nn.init.normal_(part.weight, std=0.02)
    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(norm.bias, getattr(table, "NORM_BIAS", 0.0), 0.2)
    if norms:
        with torch.no_grad():
            for norm in norms:
                norm.momentum = None  # the mean of what it sees
                norm.train()
            module(*(torch.from_numpy(array) for array in inputs(kinds, 32, seed=0)))
            for norm in norms:
                norm.momentum = 0.1
    return module.eval()


def load(split: str, family: str, network: str):
    """Made-up examples for a network, without labels."""
    kinds = importlib.import_module(family).NETWORKS[network][1]
    return inputs(kinds, EXAMPLES[split], seed=_SEEDS[split]), None


load.preprocessing = {"to_float": False}


def inputs(kinds, count: int, *, seed: int):
    """One array per input: image (small shapes and noise), photo (large and small shapes, and little noise: what deep
    networks tell apart), vector (normal), tokens, padded (tokens that end in zeros), ones, lengths (1 to the given
    one)."""
    rng = np.random.default_rng(seed)
    return tuple(_input(rng, kind, tuple(shape), count) for kind, *shape in kinds)


def _input(rng, kind: str, shape: tuple[int, ...], count: int):
    if kind == "image":
        return (_shapes(rng, shape, count, 4) + 0.3 * rng.normal(size=(count, *shape))).astype(np.float32)
    if kind == "photo":
        sizes = [max(1, shape[-1] // parts) for parts in (1, 2, 4, 8)]
        shapes = sum(_shapes(rng, shape, count, size) for size in sizes)
        return (shapes / 2 + 0.1 * rng.normal(size=(count, *shape))).astype(np.float32)
    if kind == "vector":
        return rng.normal(size=(count, *shape)).astype(np.float32)
    if kind == "lengths":
        return rng.integers(1, shape[0] + 1, count)
    if kind == "ones":
        return np.ones((count, *shape), np.int64)
    tokens = rng.integers(1, 100, (count, *shape))
    if kind == "padded":
        lengths = rng.integers(2, shape[-1] + 1, (count, 1))
        tokens[np.arange(shape[-1]) >= lengths] = 0
    return tokens


def _shapes(rng, shape: tuple[int, ...], count: int, size: int):
    """Squares of that many pixels a side, each of a colour of its own."""
    coarse = rng.normal(size=(count, *shape[:-2], -(-shape[-2] // size), -(-shape[-1] // size)))
    return coarse.repeat(size, axis=-2).repeat(size, axis=-1)[..., : shape[-2], : shape[-1]]


if __name__ == "__main__":
    import sys

    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    for name in names():
        family = family_of(name)
        torch.manual_seed(0)
        module = build(family, name)
        parameters = sum(parameter.numel() for parameter in module.parameters())
        with torch.no_grad():
            outputs = module(*(torch.from_numpy(array) for array in load("test", family, name)[0]))
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        print(f"{name:20} {parameters:8,} {list(first.shape)} {float(first.std()):.3g} {bool(first.isfinite().all())}")
