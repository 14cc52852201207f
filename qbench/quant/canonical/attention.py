"""torch's attention and encoder layers, which hide their Linear layers from quantizers, spelled out in layers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from qbench.quant import model_call
from qbench.quant.canonical.rewrite import Rewrite

if TYPE_CHECKING:
    from qbench.quant.canonical.attention_layers import Use

# The arguments of each kind of layer that are tensors or say how to attend, in order.
_ATTENTION = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
_LAYER = ("src", "src_mask", "src_key_padding_mask")
_ENCODER = ("src", "mask", "src_key_padding_mask")


def spell_out(module: Any, example: tuple[Any, ...]) -> list[Rewrite]:
    """Puts layers that do the same with plain Linear layers in the place of ``nn.MultiheadAttention``,
    ``nn.TransformerEncoderLayer`` and ``nn.TransformerEncoder``; changes ``module``.

    Their own weights become ``in_proj`` (or ``q_proj`` and so on) beside ``out_proj``; all other names stay. An
    attention layer with appended biases or zeros, with an unbatched input or called in several ways is left, and so
    is the encoder layer around it.
    """
    rewrites = []
    uses = _uses(module, example)
    for kind, (new, _) in _classes().items():
        for name, part in list(module.named_modules()):
            use = uses.get(name)
            if type(part) is kind and use is not None and new.fits(part):
                module.set_submodule(name, new(part, use).train(part.training))
                rewrites.append(Rewrite(what=f"{kind.__name__} spelled out in Linear layers", name=name))
    return rewrites


def _uses(module: Any, example: tuple[Any, ...]) -> dict[str, Use | None]:
    """The layers that are called, by name; None for one that is called in several ways, or in one that is not known."""
    import torch

    layer_uses: dict[str, set[Use | None]] = {}
    hooks = []
    for name, part in module.named_modules():
        if name and type(part) in _classes() and not (part._forward_hooks or part._forward_pre_hooks):

            def note(layer: Any, args: Any, kwargs: Any, name: str = name) -> None:
                names = _classes()[type(layer)][1]
                layer_uses.setdefault(name, set()).add(_use(layer, dict(zip(names, args, strict=False)) | kwargs))

            hooks.append(part.register_forward_pre_hook(note, with_kwargs=True))
    if hooks:
        with model_call.hooked(hooks), model_call.plain_attention(), torch.no_grad():
            module(*example)
    return {name: next(iter(uses)) if len(uses) == 1 else None for name, uses in layer_uses.items()}


def _use(layer: Any, arguments: dict[str, Any]) -> Use | None:
    import torch

    from qbench.quant.canonical.attention_layers import Use

    def kind(*names: str) -> tuple[bool, int] | None:
        mask = next((arguments[name] for name in names if arguments.get(name) is not None), None)
        return None if mask is None else (mask.dtype == torch.bool, mask.dim())

    padding, mask = kind("key_padding_mask", "src_key_padding_mask"), kind("attn_mask", "src_mask", "mask")
    if "src" in arguments:
        return Use(padding_mask=padding, mask=mask)
    query, key, value = arguments["query"], arguments["key"], arguments["value"]
    if layer.bias_k is not None or layer.add_zero_attn or any(tensor.dim() != 3 for tensor in (query, key, value)):
        return None
    inputs = "self" if query is key and key is value else "memory" if key is value else "apart"
    return Use(inputs=inputs if layer._qkv_same_embed_dim else "apart", padding_mask=padding, mask=mask)


@functools.cache
def _classes() -> dict[Any, tuple[Any, tuple[str, ...]]]:
    """torch's layers, innermost first -> what takes their place, and the names of their arguments."""
    from torch import nn

    from qbench.quant.canonical.attention_layers import Attention, Encoder, Layer

    return {
        nn.MultiheadAttention: (Attention, _ATTENTION),
        nn.TransformerEncoderLayer: (Layer, _LAYER),
        nn.TransformerEncoder: (Encoder, _ENCODER),
    }
