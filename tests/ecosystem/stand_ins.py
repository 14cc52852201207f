"""Operators of torchvision that are missing beside a CPU build of torch: its library there is linked against CUDA.

Only their names are needed, so that the package imports; ``nms`` and ``roi_align`` compute what they say, slowly.
"""

from __future__ import annotations

import importlib.util

_KEPT: list[object] = []  # a library that is collected takes its operators away


def install() -> None:
    """Defines what torch has not loaded; does nothing without torchvision, and where its own library is there."""
    if importlib.util.find_spec("torchvision") is None:
        return
    import torch

    try:
        torch.ops.torchvision.nms  # noqa: B018  # asked for, not used
        return
    except (AttributeError, RuntimeError):
        pass
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    )
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    _KEPT.append(library)
    register = torch.library.register_fake

    def register_known(name, *given, **options):
        """Shapes of operators that are not there are of no use."""
        try:
            return register(name, *given, **options)
        except RuntimeError as error:
            if not str(name).startswith("torchvision::") or "does not exist" not in str(error):
                raise
            return lambda function: function

    def register_lazily(name, *given, **options):
        """Used as a decorator, it raises only as the function comes."""
        decorate = register_known(name, *given, **options)

        def take(function):
            try:
                return decorate(function)
            except RuntimeError as error:
                if "does not exist" not in str(error):
                    raise
                return function

        return take

    torch.library.register_fake = register_lazily
    import torchvision.extension

    torchvision.extension._has_ops = lambda: True


def _nms(boxes, scores, threshold):
    import torch

    order, kept = scores.argsort(descending=True).tolist(), []
    while order:
        best, rest = order[0], order[1:]
        kept.append(best)
        if not rest:
            break
        low = torch.maximum(boxes[rest, :2], boxes[best, :2])
        high = torch.minimum(boxes[rest, 2:], boxes[best, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        overlap = shared / (areas[rest] + areas[best] - shared)
        order = [index for index, part in zip(rest, overlap.tolist(), strict=True) if part <= threshold]
    return torch.tensor(kept, dtype=torch.int64)


def _roi_align(features, rois, scale, height, width, sampling, aligned):
    import torch
    from torch.nn import functional

    pooled = []
    for roi in rois:
        image, (x1, y1, x2, y2) = int(roi[0]), (float(v) * scale - (0.5 if aligned else 0.0) for v in roi[1:])
        ys = y1 + (torch.arange(height) + 0.5) * max(y2 - y1, 1e-6) / height
        xs = x1 + (torch.arange(width) + 0.5) * max(x2 - x1, 1e-6) / width
        grid = torch.stack(torch.meshgrid(ys, xs, indexing="ij"), -1).flip(-1)
        size = torch.tensor([features.shape[-1] - 1, features.shape[-2] - 1]).clamp(min=1)
        part = functional.grid_sample(features[image : image + 1], grid[None] / size * 2 - 1, align_corners=True)
        pooled.append(part[0])
    return torch.stack(pooled) if pooled else features.new_zeros((0, features.shape[1], height, width))
