"""The options of the built-in data sets: what stands beside a data set's name in a suite, checked once.

A suite that is only read is checked by these models (``suite.data_checks`` says where in the file), and each data set
gets its own from ``read``. They import no numpy, since a plan asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from qbench import registry
from qbench.datasets.npz_keys import LAYOUTS
from qbench.errors import DataError
from qbench.files import regular_file

TOKENS = ("ids", "mask", "types")
ORDERS = ("rgb", "bgr")
TRAIN_AND_TEST = ("train", "test")
SPLITS: dict[str, tuple[str, ...]] = dict.fromkeys(("digits", "mnist", "fashion-mnist", "cifar-10"), TRAIN_AND_TEST)
Model = TypeVar("Model", bound="Options")


def _wrong(what: str, *at: str) -> PydanticCustomError:
    return PydanticCustomError("qbench", "{what}", {"what": what, "at": at})


def _read_whole(value: Any, *, low: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise _wrong(f"expected a whole number of at least {low}, got {value!r}")
    return value


def _read_seed(value: Any) -> int:
    return _read_whole(value, low=0) or 0


def _read_share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise _wrong(f"expected a number between 0 and 1, got {value!r}")
    return float(value)


def _read_choice(value: Any, *, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise _wrong(f"expected one of {', '.join(map(str, allowed))}, got {value!r}")
    return value


def _read_number(value: Any) -> float:
    try:
        number = float(Fraction(value)) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise _wrong(f"expected a number such as 0.5 or 1/255, got {value!r}") from error
    if isinstance(value, bool) or not math.isfinite(number):
        raise _wrong(f"expected a finite number, got {value!r}")
    return number


def _read_numbers(value: Any, *, positive: bool) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise _wrong(f"expected a number, or one for each channel, got {value!r}")
    numbers = tuple(_read_number(entry) for entry in values)
    if positive and min(numbers) <= 0:
        raise _wrong(f"must be above 0, got {value!r}")
    return numbers


def _read_size(value: Any) -> tuple[int, int] | None:
    sides = [_read_whole(side, low=1) for side in (value if isinstance(value, list | tuple) else [value, value])]
    if value is None:
        return None
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        raise _wrong(f"expected a whole number or [height, width], got {value!r}")
    return sides[0], sides[1]


def _read_tokens(value: Any) -> tuple[str, ...]:
    kinds = list(value) if isinstance(value, list | tuple) else [value]
    if not kinds or any(kind not in TOKENS for kind in kinds) or len(set(kinds)) < len(kinds):
        raise _wrong(f"expected a list of {', '.join(TOKENS)}, each once, got {value!r}")
    return tuple(kinds)


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(f"expected text, got {value!r}")
    return value


def _read_path(value: Any) -> str | Path | None:
    if value is not None and (not isinstance(value, str | Path) or not str(value)):
        raise _wrong(f"expected a path, got {value!r}")
    return value


def _read_character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise _wrong(f"expected one character, got {value!r}")
    return value


def _read_names(value: Any) -> int | tuple[str, ...] | None:
    """How many classes, or their names."""
    if not isinstance(value, list | tuple):
        return _read_whole(value, low=2)
    names = tuple(str(name) for name in value)
    if len(names) < 2 or len(set(names)) < len(names):
        raise _wrong(f"expected a number, or a list of different names, got {value!r}")
    return names


def _read_folders(value: Any) -> int | str | tuple[str, ...] | None:
    """How many classes, a file with the names of their folders, or these names."""
    if isinstance(value, int):
        return _read_whole(value, low=1)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(name, str) for name in value):
        raise _wrong(
            "expected a number, a list of folder names (in quotes where they are numbers) or a file with one a line, "
            f"got {value!r}"
        )
    return tuple(value)


def _read_arguments(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise _wrong(f"expected a mapping of names to values, got {value!r}")
    return value


Count = Annotated[int | None, PlainValidator(partial(_read_whole, low=1))]
Classes = Annotated[int | None, PlainValidator(partial(_read_whole, low=2))]
Channels = Annotated[int, PlainValidator(partial(_read_choice, allowed=(3, 1)))]
Layout = Annotated[Literal["nchw", "nhwc"], PlainValidator(partial(_read_choice, allowed=("nchw", "nhwc")))]
Order = Annotated[str, PlainValidator(partial(_read_choice, allowed=ORDERS))]
Stored = Annotated[str, PlainValidator(partial(_read_choice, allowed=LAYOUTS))]
Whether = Annotated[bool, PlainValidator(partial(_read_choice, allowed=(True, False)))]
Numbers = Annotated[tuple[float, ...], PlainValidator(partial(_read_numbers, positive=False))]
Above0 = Annotated[tuple[float, ...], PlainValidator(partial(_read_numbers, positive=True))]
Text = Annotated[str, PlainValidator(_read_text)]


class Options(BaseModel):
    """The options of one data set; it cannot change, and an unknown one is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    loader: ClassVar[str] = ""

    def list_given(self, model: type[BaseModel]) -> dict[str, Any]:
        """What the suite gives of the options of ``model``."""
        return {key: getattr(self, key) for key in model.model_fields if key in self.model_fields_set}


class Classed(Options):
    """How many classes the labels have."""

    classes: Classes = None


class Apart(Options):
    """How data without splits becomes train and test."""

    seed: Annotated[int, PlainValidator(_read_seed)] = 0
    test_share: Annotated[float, PlainValidator(_read_share)] = 0.25


class Scaled(Options):
    """What makes raw numbers those that the model takes; a scale may be written ``1/255``, None is the data set's."""

    scale: Annotated[float | None, PlainValidator(_read_number)] = None
    mean: Numbers = (0.0,)
    std: Above0 = (1.0,)

    @model_validator(mode="after")
    def _require_as_many_channels(self) -> Self:
        if 1 < len(self.mean) != len(self.std) > 1:
            raise _wrong(f"mean has {len(self.mean)} channels, std has {len(self.std)}")
        return self


class Tokenized(Options):
    """How texts become tokens; None: as the data set has it."""

    tokenizer: Annotated[str | Path | None, PlainValidator(_read_path)] = None
    length: Count = None
    tokens: Annotated[tuple[str, ...], PlainValidator(_read_tokens)] = ("ids", "mask")
    pad: Annotated[int | None, PlainValidator(partial(_read_whole, low=0))] = None


class Images(Scaled):
    """What images become."""

    loader: ClassVar[str] = "image-folder"
    size: Annotated[tuple[int, int] | None, PlainValidator(_read_size)] = None
    resize: Count = None
    channels: Channels = 3
    layout: Layout = "nchw"
    order: Order = ORDERS[0]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.resize is not None and self.size is None:
            raise _wrong("resize needs size, the height and width of the crop after it")
        if self.resize is not None and self.size is not None and self.size[0] == self.size[1] > self.resize:
            raise _wrong(f"the short side ({self.resize}) must be at least size ({self.size[0]})", "resize")
        if self.order != ORDERS[0] and self.channels == 1:
            raise _wrong(f"{self.order} is of 3 channels, channels is 1; take one of the two out", "order")
        return self


class Plain(Options):
    """Of a data set that takes none."""


class Digits(Plain):
    """Of scikit-learn's digits."""

    loader: ClassVar[str] = "digits"


class Mnist(Plain):
    """Of MNIST."""

    loader: ClassVar[str] = "mnist"


class FashionMnist(Plain):
    """Of Fashion-MNIST."""

    loader: ClassVar[str] = "fashion-mnist"


class Cifar10(Plain):
    """Of CIFAR-10."""

    loader: ClassVar[str] = "cifar-10"


class Npz(Apart, Scaled, Classed):
    """Of arrays in an ``.npz`` file."""

    loader: ClassVar[str] = "npz"
    to_float: Whether = True
    stored_layout: Stored = "as-is"


class Idx(Scaled, Classed):
    """Of IDX files."""

    loader: ClassVar[str] = "idx"


class ImageFolder(Apart, Images):
    """Of images in folders."""

    classes: Annotated[int | str | tuple[str, ...] | None, PlainValidator(_read_folders)] = None


class Imagenet(ImageFolder):
    """Of ImageNet's images: resized, cropped and scaled as its networks expect it."""

    loader: ClassVar[str] = "imagenet"
    size: Annotated[tuple[int, int] | None, PlainValidator(_read_size)] = (224, 224)
    resize: Count = 256
    mean: Numbers = (0.485, 0.456, 0.406)
    std: Above0 = (0.229, 0.224, 0.225)


class Sentiment(Apart, Tokenized):
    """Of the reviews of films."""

    loader: ClassVar[str] = "sentiment"


class Csv(Apart, Tokenized):
    """Of texts in CSV files."""

    loader: ClassVar[str] = "csv"
    text: Text = "text"
    label: Text = "label"
    split: Text = "split"
    classes: Annotated[int | tuple[str, ...] | None, PlainValidator(_read_names)] = None
    delimiter: Annotated[str, PlainValidator(_read_character)] = ","
    encoding: Text = "utf-8"


class HuggingFace(Apart, Tokenized, Images, Classed):
    """Of a data set of Hugging Face's library."""

    loader: ClassVar[str] = "huggingface"
    text: Any = None
    image: Any = None
    inputs: Any = None
    label: Any = None
    config: Any = None
    revision: Any = None
    to_float: Whether = True


class Python(Scaled, Classed):
    """Of a function of the user's."""

    loader: ClassVar[str] = "python"
    args: Annotated[Mapping[str, Any], PlainValidator(_read_arguments)] = {}
    to_float: Whether = True


OPTIONS: dict[str, type[Options]] = {
    model.loader: model
    for model in (
        *(Digits, Mnist, FashionMnist, Cifar10, Imagenet, Npz, ImageFolder, Idx),
        *(Sentiment, Csv, HuggingFace, Python),
    )
}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What is wrong with options: ``key`` is the one it is about, empty where several do not go together; ``unknown``:
    there is no such option."""

    key: str
    what: str
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.key}: {self.what}" if self.key and not self.unknown else self.what


def read(model: type[Model], options: Mapping[str, Any], where: str | None = None) -> Model:
    """The options of a data set; raises ``DataError`` with every problem, behind ``where`` they stand (None: the data
    set's name)."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        refused = explain(error, model)
        lines = (
            ": ".join([where or model.loader, *([r.key] if r.key and not r.unknown else []), r.what]) for r in refused
        )
        raise DataError("\n".join(lines)) from error


def explain(error: ValidationError, model: type[Options]) -> Iterator[Refusal]:
    """What is wrong with the options that were given for ``model``."""
    names = tuple(model.model_fields)
    for item in error.errors(include_url=False):
        key = str(item["loc"][0]) if item["loc"] else "".join(item["ctx"]["at"])
        if item["type"] == "extra_forbidden":
            has = f"options of {model.loader}: {', '.join(names)}" if names else f"{model.loader} takes no options"
            what = f"no option '{key}'{registry.suggest(key, names) or ';'} {has}"
            yield Refusal(key=key, what=what, unknown=True)
        else:
            yield Refusal(key=key, what=item["ctx"]["what"])


def read_path(loader: str, value: Any, base: Path) -> Path:
    """The absolute path of a value; a relative one starts at the suite's folder. It must exist."""
    if not isinstance(value, str | Path) or not str(value):
        raise DataError(f"{loader}: expected a path, got {value!r}")
    file = regular_file.resolve_path(value, base)
    if (why := regular_file.explain_unusable(file)) is not None:
        raise DataError(f"{loader}: {file}: {why}; a relative path starts at the suite's folder")
    return file
