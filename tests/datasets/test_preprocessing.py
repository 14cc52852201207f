"""Rules of datasets/preprocessing.py: what the network takes of raw examples."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.datasets.options import ScalingOptions
from qbench.datasets.preprocessing import Preprocessing, read_preprocessing

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)


@pytest.mark.parametrize(
    ("axis", "array"), [(1, PIXELS), (-1, PIXELS.transpose(0, 2, 3, 1)), (3, PIXELS.transpose(0, 2, 3, 1))]
)
@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), (2.0,)), ((1.0, 2.0, 3.0), (2.0,)), ((0.5,), (1.0, 2.0, 4.0)), ((1.0, 2.0, 3.0),) * 2]
)
def test_values_are_scaled_then_shifted_then_divided(
    axis: int, array: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    """Each channel by its own mean and deviation, or all by one, wherever channels lie; float32 in one piece."""
    (values,) = Preprocessing(scale=0.5, mean=mean, std=std, channel_axis=axis)((array,))
    channels = np.moveaxis(array, axis, -1).astype(np.float64)
    expected = np.moveaxis((channels * 0.5 - np.array(mean)) / np.array(std), -1, axis)
    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_two_channels_and_values_without_any() -> None:
    """An input may be a number an example, where one mean is for all."""
    (two,) = Preprocessing(mean=(1.0, 2.0), std=(2.0, 4.0))((PIXELS[:, :2],))
    assert two[0, :, 0, 0].tolist() == [(0 - 1) / 2, (4 - 2) / 4]
    (single,) = Preprocessing(scale=2.0, mean=(1.0,), std=(4.0,))((np.arange(3),))
    assert single.tolist() == [-0.25, 0.25, 0.75]


def test_numbers_of_tokens_pass_as_they_are_and_channels_may_come_the_other_way_round() -> None:
    """In the order of the model, in which its means are, too."""
    whole = Preprocessing(scale=0.5, mean=(3.0,), to_float=False)((PIXELS.transpose(3, 0, 1, 2),))[0]
    assert whole.dtype == np.uint8
    assert whole.flags.c_contiguous
    assert (whole == PIXELS.transpose(3, 0, 1, 2)).all()
    turned = Preprocessing(mean=(1.0, 2.0, 3.0), reverse_channels=True)((PIXELS,))[0]
    np.testing.assert_allclose(turned, PIXELS[:, ::-1].astype(float) - np.reshape([1, 2, 3], (3, 1, 1)))


def test_a_digest_is_of_all_parameters_and_of_earlier_records() -> None:
    """Whatever differs, another one; of data in the usual order, the one of before channels could be turned."""
    variants = [
        Preprocessing(),
        Preprocessing(scale=0.5),
        Preprocessing(mean=(1.0,)),
        Preprocessing(std=(2.0,)),
        Preprocessing(to_float=False),
        Preprocessing(channel_axis=3),
        Preprocessing(reverse_channels=True),
    ]
    assert len({preprocessing.digest() for preprocessing in variants}) == len(variants)
    assert Preprocessing().digest() == "97841c55807f1ece4c284f07c1679bde9399b836fb552933b7bfe54541602502"


def test_options_name_the_scale_or_the_data_set_does() -> None:
    """A scale of the data set's own where none is written."""
    plain, scaled = ScalingOptions.model_validate({}), ScalingOptions.model_validate({"scale": 0, "mean": 1, "std": 2})
    assert read_preprocessing(plain, scale=0.25) == Preprocessing(scale=0.25)
    assert read_preprocessing(plain) == Preprocessing()
    assert read_preprocessing(
        scaled, scale=0.25, to_float=False, channel_axis=3, reverse_channels=True
    ) == Preprocessing(scale=0.0, mean=(1.0,), std=(2.0,), to_float=False, channel_axis=3, reverse_channels=True)
