"""torch's attention and encoder layers, which hide their Linear layers from quantizers, spelled out in layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from qbench.quant import model_call
from qbench.quant.canonical.rewrite import Rewrite

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
    for kind, (new, _) in _SPELLED_OUT.items():
        for name, part in list(module.named_modules()):
            use = uses.get(name)
            if type(part) is kind and use is not None and new.fits(part):
                module.set_submodule(name, new(part, use).train(part.training))
                rewrites.append(Rewrite(what=f"{kind.__name__} spelled out in Linear layers", name=name))
    return rewrites


def _uses(module: Any, example: tuple[Any, ...]) -> dict[str, Use | None]:
    """The layers that are called, by name; None for one that is called in several ways, or in one that is not known."""
    layer_uses: dict[str, set[Use | None]] = {}
    hooks = []
    for name, part in module.named_modules():
        if name and type(part) in _SPELLED_OUT and not (part._forward_hooks or part._forward_pre_hooks):

            def note(layer: Any, args: Any, kwargs: Any, name: str = name) -> None:
                names = _SPELLED_OUT[type(layer)][1]
                layer_uses.setdefault(name, set()).add(_use(layer, dict(zip(names, args, strict=False)) | kwargs))

            hooks.append(part.register_forward_pre_hook(note, with_kwargs=True))
    if hooks:
        with model_call.hooked(hooks), model_call.plain_attention(), torch.no_grad():
            module(*example)
    return {name: next(iter(uses)) if len(uses) == 1 else None for name, uses in layer_uses.items()}


def _use(layer: Any, arguments: dict[str, Any]) -> Use | None:
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


_PARTS = (
    "self_attn", "linear1", "dropout", "linear2", "norm1", "norm2", "dropout1", "dropout2", "activation"
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Use:
    """How a layer is called: which inputs are one tensor (``self``: query, key and value, ``memory``: key and value,
    ``apart``), and of each mask whether it is Boolean and its number of axes (None: not given)."""

    inputs: str = "self"
    padding_mask: tuple[bool, int] | None = None
    mask: tuple[bool, int] | None = None


class Attention(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """``nn.MultiheadAttention`` for one way of calling it; the same arguments and results."""

    @staticmethod
    def fits(layer: Any) -> bool:
        """Any: what cannot be spelled out has no use that is known."""
        return True

    def __init__(self, layer: Any, use: Use) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = layer.embed_dim, layer.num_heads, layer.head_dim
        self.batch_first, self.use, self.dtype = layer.batch_first, use, layer.out_proj.weight.dtype
        for name, (weight, bias) in _projections(layer, use.inputs).items():
            setattr(self, name, _linear(weight, bias))
        self.out_proj = _linear(layer.out_proj.weight, layer.out_proj.bias)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        """Outputs and, where they are asked for, weights of the attention."""
        q, k, v = (self.heads(tensor) for tensor in self.projected(query, key, value))
        mask = self.masks(key_padding_mask, attn_mask)
        weights = None
        if need_weights:
            scores = torch.matmul(q * self.head_dim**-0.5, k.transpose(-2, -1))
            weights = torch.softmax(scores if mask is None else scores + mask, -1)
            result = torch.matmul(weights, v)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            result = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        joined = result.transpose(1, 2) if self.batch_first else result.permute(2, 0, 1, 3)
        return self.out_proj(joined.flatten(2)), weights

    def projected(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values."""
        if self.use.inputs == "self":
            projections = self.in_proj(query).chunk(3, -1)
            return projections[0], projections[1], projections[2]
        if self.use.inputs == "memory":
            projections = self.kv_proj(key).chunk(2, -1)
            return self.q_proj(query), projections[0], projections[1]
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

    def heads(self, tensor: Any) -> Any:
        """(batch, heads, length, features of a head)."""
        apart = tensor.unflatten(-1, (self.num_heads, self.head_dim))
        return apart.transpose(1, 2) if self.batch_first else apart.permute(1, 2, 0, 3)

    def masks(self, padding: Any, mask: Any) -> Any:
        """What is added to the scores, None for nothing."""
        total = None
        if self.use.padding_mask is not None:
            total = _added(padding, self.use.padding_mask, self.dtype).unsqueeze(1).unsqueeze(2)
        if self.use.mask is not None:
            added = _added(mask, self.use.mask, self.dtype)
            added = added.unflatten(0, (-1, self.num_heads)) if self.use.mask[1] == 3 else added
            total = added if total is None else total + added
        return total


class EncoderLayer(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """``nn.TransformerEncoderLayer`` without its hidden fast path."""

    def __init__(self, layer: Any, use: Use) -> None:
        super().__init__()
        for name in _PARTS:
            setattr(self, name, getattr(layer, name))
        self.norm_first, self.use, self.dtype = layer.norm_first, use, layer.linear1.weight.dtype

    @staticmethod
    def fits(layer: Any) -> bool:
        """Whether its attention is spelled out."""
        return isinstance(layer.self_attn, Attention)

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        """The output of the layer."""
        masks = {
            "attn_mask": _added(src_mask, self.use.mask, self.dtype),
            "key_padding_mask": _added(src_key_padding_mask, self.use.padding_mask, self.dtype),
        }
        if self.norm_first:
            src = src + self.attended(self.norm1(src), masks)
            return src + self.fed(self.norm2(src))
        src = self.norm1(src + self.attended(src, masks))
        return self.norm2(src + self.fed(src))

    def attended(self, x: Any, masks: dict[str, Any]) -> Any:
        """The attention block."""
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **masks)[0])

    def fed(self, x: Any) -> Any:
        """The feed-forward block."""
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class Encoder(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """``nn.TransformerEncoder`` without nested tensors, and as those with zeros where the padding mask says so."""

    def __init__(self, encoder: Any, use: Use) -> None:
        super().__init__()
        self.layers, self.norm, self.use = encoder.layers, encoder.norm, use
        self.dtype = encoder.layers[0].linear1.weight.dtype
        self.zeros = encoder.use_nested_tensor and use.padding_mask is not None and use.mask is None

    @staticmethod
    def fits(encoder: Any) -> bool:
        """Whether its layers are spelled out."""
        return all(isinstance(layer, EncoderLayer) for layer in encoder.layers)

    def forward(self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None) -> Any:
        """The output of all layers."""
        added = _added(mask, self.use.mask, self.dtype)
        padding = _added(src_key_padding_mask, self.use.padding_mask, self.dtype)
        for layer in self.layers:
            src = layer(src, src_mask=added, src_key_padding_mask=padding)
        if self.zeros:
            src = src.masked_fill((padding != 0).unsqueeze(-1), 0.0)
        return src if self.norm is None else self.norm(src)


def _added(mask: Any, kind: tuple[bool, int] | None, dtype: Any) -> Any:
    """What a mask adds to the scores; a Boolean one says where attention is not allowed."""
    if kind is None or not kind[0]:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))


def _linear(weight: Any, bias: Any) -> Any:
    """A Linear layer with these tensors, which are its parameters where they are parameters."""
    layer = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None:
            shared = isinstance(tensor, nn.Parameter)
            setattr(layer, name, tensor if shared else nn.Parameter(tensor.detach().clone()))
    return layer


def _projections(layer: Any, inputs: str) -> dict[str, tuple[Any, Any]]:
    """The input projections as (weight, bias), by the name of their Linear layer."""
    width, bias = layer.embed_dim, layer.in_proj_bias
    if inputs == "self":
        return {"in_proj": (layer.in_proj_weight, bias)}
    if not layer._qkv_same_embed_dim:
        weights = [layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight]
    else:
        weights = list(layer.in_proj_weight.split(width))
    biases = [None] * 3 if bias is None else list(bias.split(width))
    if inputs == "memory":
        kv_bias = None if bias is None else bias[width:]
        return {"q_proj": (weights[0], biases[0]), "kv_proj": (layer.in_proj_weight[width:], kv_bias)}
    return dict(zip(("q_proj", "k_proj", "v_proj"), zip(weights, biases, strict=True), strict=True))


# torch's layers, innermost first -> what takes their place, and the names of their arguments.
_SPELLED_OUT: dict[Any, tuple[Any, tuple[str, ...]]] = {
    nn.MultiheadAttention: (Attention, _ATTENTION),
    nn.TransformerEncoderLayer: (EncoderLayer, _LAYER),
    nn.TransformerEncoder: (Encoder, _ENCODER),
}
