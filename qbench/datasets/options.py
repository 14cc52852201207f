"""The options of the built-in data sets: what stands beside a data set's name in a suite, checked once.

A suite that is only read is checked by these models (``suite.data_checks`` says where in the file), and each data set
gets its own from ``read``. They import no numpy, since a plan asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from qbench import registry
from qbench.datasets import option_values as values
from qbench.errors import DataError
from qbench.files import regular_file

TRAIN_AND_TEST = ("train", "test")
SPLITS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("digits", "mnist", "fashion-mnist", "cifar-10", "shapes", "rendered-text", "docstrings", "film-reviews"),
    TRAIN_AND_TEST,
)
WINDOW = 128  # tokens of a window, where the suite does not say
Model = TypeVar("Model", bound="DatasetOptions")


class DatasetOptions(BaseModel):
    """The options of one data set; it cannot change, and an unknown one is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    loader: ClassVar[str] = ""

    def list_given(self, model: type[BaseModel]) -> dict[str, Any]:
        """What the suite gives of the options of ``model``."""
        return {key: getattr(self, key) for key in model.model_fields if key in self.model_fields_set}


class ClassOptions(DatasetOptions):
    """How many classes the labels have."""

    classes: values.Classes = None


class SplitOptions(DatasetOptions):
    """How data without splits becomes train and test."""

    seed: values.Seed = 0
    test_share: values.Share = 0.25


class ScalingOptions(DatasetOptions):
    """What makes raw numbers those that the model takes; a scale may be written ``1/255``, None is the data set's."""

    scale: values.Scale = None
    mean: values.Numbers = (0.0,)
    std: values.Above0 = (1.0,)

    @model_validator(mode="after")
    def _require_as_many_channels(self) -> Self:
        if 1 < len(self.mean) != len(self.std) > 1:
            raise values.wrong(f"mean has {len(self.mean)} channels, std has {len(self.std)}")
        return self


class TokenOptions(DatasetOptions):
    """How texts become tokens; None: as the data set has it."""

    tokenizer: values.File = None
    length: values.Count = None
    tokens: values.TokenKinds = ("ids", "mask")
    pad: values.Pad = None


class ImageOptions(ScalingOptions):
    """What images become."""

    loader: ClassVar[str] = "image-folder"
    size: values.Size = None
    resize: values.Count = None
    channels: values.Channels = 3
    layout: values.Layout = "nchw"
    order: values.Order = values.ORDERS[0]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.resize is not None and self.size is None:
            raise values.wrong("resize needs size, the height and width of the crop after it")
        if self.resize is not None and self.size is not None and self.size[0] == self.size[1] > self.resize:
            raise values.wrong(f"the short side ({self.resize}) must be at least size ({self.size[0]})", "resize")
        if self.order != values.ORDERS[0] and self.channels == 1:
            raise values.wrong(f"{self.order} is of 3 channels, channels is 1; take one of the two out", "order")
        return self


class NoOptions(DatasetOptions):
    """Of a data set that takes none."""


class DigitsOptions(NoOptions):
    """Of scikit-learn's digits."""

    loader: ClassVar[str] = "digits"


class MnistOptions(NoOptions):
    """Of MNIST."""

    loader: ClassVar[str] = "mnist"


class FashionMnistOptions(NoOptions):
    """Of Fashion-MNIST."""

    loader: ClassVar[str] = "fashion-mnist"


class Cifar10Options(NoOptions):
    """Of CIFAR-10."""

    loader: ClassVar[str] = "cifar-10"


class NpzOptions(SplitOptions, ScalingOptions, ClassOptions):
    """Of arrays in an ``.npz`` file."""

    loader: ClassVar[str] = "npz"
    to_float: values.Whether = True
    stored_layout: values.Stored = "as-is"


class IdxOptions(ScalingOptions, ClassOptions):
    """Of IDX files."""

    loader: ClassVar[str] = "idx"


class ImageFolderOptions(SplitOptions, ImageOptions):
    """Of images in folders."""

    classes: values.FolderClasses = None


class MasksOptions(SplitOptions, ImageOptions, ClassOptions):
    """Of images with masks; ``ignore``: the number of pixels of which nobody says what they are (null: none)."""

    loader: ClassVar[str] = "masks"
    ignore: values.Pad = 255


class CocoOptions(SplitOptions, ImageOptions):
    """Of images with boxes in COCO's form; ``fit``: how an image becomes one of ``size``."""

    loader: ClassVar[str] = "coco"
    images: values.File = None
    size: values.Size = (640, 640)
    fit: values.Fit = values.FITS[0]

    @model_validator(mode="after")
    def _keep_whole(self) -> Self:
        if self.resize is not None:
            raise values.wrong(f"a crop would cut boxes; images become `size` whole, by fit: {values.FITS}", "resize")
        if self.size is None:
            raise values.wrong("expected the height and width that the network takes", "size")
        return self


class ShapesOptions(NoOptions):
    """Of the rendered scenes."""

    loader: ClassVar[str] = "shapes"


class RenderedTextOptions(NoOptions):
    """Of the rendered lines and pages."""

    loader: ClassVar[str] = "rendered-text"


class ImagenetOptions(ImageFolderOptions):
    """Of ImageNet's images: resized, cropped and scaled as its networks expect it."""

    loader: ClassVar[str] = "imagenet"
    size: values.Size = (224, 224)
    resize: values.Count = 256
    mean: values.Numbers = (0.485, 0.456, 0.406)
    std: values.Above0 = (0.229, 0.224, 0.225)


class SentimentOptions(SplitOptions, TokenOptions):
    """Of the reviews of films."""

    loader: ClassVar[str] = "sentiment"


class SearchOptions(TokenOptions):
    """What embeds the documents of an index: the ``variant`` that is judged, or ``fp32``, where the index stays."""

    corpus: values.Corpus = values.CORPORA[0]


class DocstringsOptions(SearchOptions):
    """Of the documentation of Python's library; ``documents``: how many of them."""

    loader: ClassVar[str] = "docstrings"
    documents: values.Count = 1000


class RetrievalOptions(SearchOptions):
    """Of documents and queries; ``held_out``: how many documents that no query asks for calibrate, by ``seed``."""

    loader: ClassVar[str] = "retrieval"
    held_out: values.Count = 256
    seed: values.Seed = 0


class TextsOptions(SplitOptions, TokenOptions):
    """Of documents for language models; ``stride``: a window begins every so many tokens."""

    loader: ClassVar[str] = "texts"
    tokens: values.TokenKinds = ("ids",)
    stride: values.Count = None

    @model_validator(mode="after")
    def _leave_no_gap(self) -> Self:
        if self.stride is not None and self.stride > (self.length or WINDOW):
            raise values.wrong(f"windows of {self.length or WINDOW} tokens would leave some out", "stride")
        return self


class FilmReviewsOptions(DatasetOptions):
    """Of IMDB's reviews as documents; ``documents``: how many the split test has."""

    loader: ClassVar[str] = "film-reviews"
    documents: values.Count = 100
    length: values.Count = None
    stride: values.Count = None


class CsvFormat(DatasetOptions):
    """How a CSV file is written."""

    delimiter: values.Character = ","
    encoding: values.Text = "utf-8"


class CsvFileOptions(SplitOptions, CsvFormat):
    """How a CSV file is read, and its columns of texts and splits."""

    text: values.Text = "text"
    split: values.Text = "split"


class CsvOptions(CsvFileOptions, TokenOptions):
    """Of texts in CSV files."""

    loader: ClassVar[str] = "csv"
    label: values.Text = "label"
    classes: values.NamedClasses = None


class PairsOptions(SplitOptions, TokenOptions, CsvFormat):
    """Of pairs of texts; ``texts``: their two columns, ``score``: that of how alike they are."""

    loader: ClassVar[str] = "pairs"
    texts: values.TwoColumns = ("sentence1", "sentence2")
    score: values.Text = "score"
    split: values.Text = "split"


class TextLinesOptions(CsvFileOptions, ImageOptions):
    """Of images of lines with their texts; ``fit``: how a line becomes one of ``size``."""

    loader: ClassVar[str] = "text-lines"
    image: values.Text = "image"
    size: values.Size = (48, 320)
    fit: values.LineFit = values.LINE_FITS[0]
    mean: values.Numbers = (0.5,)
    std: values.Above0 = (0.5,)

    @model_validator(mode="after")
    def _keep_whole(self) -> Self:
        if self.resize is not None:
            raise values.wrong(
                f"a crop would cut letters; lines become `size` whole, by fit: {values.LINE_FITS}", "resize"
            )
        if self.size is None:
            raise values.wrong("expected the height and width that the network takes", "size")
        return self


class HuggingFaceOptions(SplitOptions, TokenOptions, ImageOptions, ClassOptions):
    """Of a data set of Hugging Face's library."""

    loader: ClassVar[str] = "huggingface"
    text: Any = None
    image: Any = None
    inputs: Any = None
    label: Any = None
    config: Any = None
    revision: Any = None
    to_float: values.Whether = True


class PythonOptions(ScalingOptions, ClassOptions):
    """Of a function of the user's."""

    loader: ClassVar[str] = "python"
    args: values.Arguments = {}
    to_float: values.Whether = True


OPTIONS: dict[str, type[DatasetOptions]] = {
    model.loader: model
    for model in (
        DigitsOptions,
        MnistOptions,
        FashionMnistOptions,
        Cifar10Options,
        ImagenetOptions,
        NpzOptions,
        ImageFolderOptions,
        MasksOptions,
        CocoOptions,
        ShapesOptions,
        RenderedTextOptions,
        DocstringsOptions,
        RetrievalOptions,
        TextsOptions,
        FilmReviewsOptions,
        IdxOptions,
        SentimentOptions,
        CsvOptions,
        PairsOptions,
        TextLinesOptions,
        HuggingFaceOptions,
        PythonOptions,
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


def explain(error: ValidationError, model: type[DatasetOptions]) -> Iterator[Refusal]:
    """What is wrong with the options that were given for ``model``."""
    names = tuple(model.model_fields)
    for item in error.errors():
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
