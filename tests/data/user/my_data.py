import numpy as np
from sklearn.datasets import load_digits


def load(split):
    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, None]  # (n, channels, height, width)
    is_test = np.arange(len(images)) % 4 == 0
    chosen = is_test if split == "test" else ~is_test
    return images[chosen], digits.target[chosen]


load.splits = ("train", "test")  # optional, these are the default
load.classes = 10  # optional, lets qbench check the labels
load.preprocessing = {"scale": "1/16", "mean": 0.306, "std": 0.377}  # optional, (x * scale - mean) / std
