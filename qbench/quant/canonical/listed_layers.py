"""Layers that a network keeps in a plain list, too, beside the name under which it registers them.

transformers' heads do so (``self.layers = [...]``, then ``add_module`` for each) and call what the list holds: a layer
that is exchanged by its name would never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, overload


class ListedLayers(list[Any]):
    """A list that gives, for each module that its owner has under a name, what goes by that name now."""

    def __init__(self, owner: Any, items: Sequence[Any], names: Mapping[int, str]) -> None:
        super().__init__(items)
        self.owner = owner
        self.names = [names.get(id(item)) for item in items]

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    @overload
    def __getitem__(self, place: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Any:
        if isinstance(place, slice):
            return [self[position] for position in range(len(self))[place]]
        name = self.names[place]
        return super().__getitem__(place) if name is None else self.owner.get_submodule(name)

    def __reversed__(self) -> Iterator[Any]:
        return iter(self[::-1])

    def __add__(self, other: list[Any]) -> list[Any]:
        return [*self, *other]


def follow_names(module: Any) -> None:
    """Puts, in the place of each list or tuple of registered modules in a network, one that follows their names;
    changes ``module``."""
    from torch import nn

    for part in module.modules():
        for key, value in list(vars(part).items()):
            if type(value) not in (list, tuple) or not any(isinstance(item, nn.Module) for item in value):
                continue
            names = {id(inner): name for name, inner in reversed(list(part.named_modules())) if name}
            if any(id(item) in names for item in value):
                vars(part)[key] = ListedLayers(part, value, names)
