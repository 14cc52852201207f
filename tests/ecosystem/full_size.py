"""Networks as people run them, in full size, with random weights: what ``run.py FOLDER --times`` measures.

BatchNorm's statistics come from the data, and its biases have a mean of 1, as in the lists (``zoo.build``).
"""

from __future__ import annotations

import functools

import detectors
import image_models
import zoo

NORM_BIAS = 1.0


def _make_unet():
    """Of the width of the paper's (Ronneberger et al. 2015), one level less deep: 7.7 million parameters."""
    from hand_networks import UNet

    return UNet(64)


NETWORKS = {
    **{
        name: (image_models.NETWORKS[name][0], (("photo", 3, 224, 224),))
        for name in ("resnet50", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny")
    },
    "yolov8n": (detectors.NETWORKS["yolov8n"][0], (("photo", 3, 320, 320),)),
    "unet": (_make_unet, (("photo", 3, 256, 256),)),
}


def make_subject(name):
    """A network that gives its first output alone, and its examples."""
    import torch
    from by_hand import Subject

    class First(torch.nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.whole = whole

        def forward(self, x):
            outputs = self.whole(x)
            return outputs if torch.is_tensor(outputs) else outputs[0]

    torch.manual_seed(0)
    module = First(zoo.build("full_size", name)).eval()
    return Subject(module=module, draw=functools.partial(_draw, NETWORKS[name][1]))


def _draw(kinds, count, seed):
    return zoo.inputs(kinds, count, seed=seed)[0]
