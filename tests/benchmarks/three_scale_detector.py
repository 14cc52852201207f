"""A detector of three scales without anchors, trained here on images of 640 pixels, and what int8 leaves of it.

    python tests/benchmarks/three_scale_detector.py FOLDER

Boxes of up to 640 pixels and scores of up to 1 end in one tensor (n, 4 + classes, 8400), as a YOLO's export has them:
under one scale of 8 bits a step is 2.5, which leaves nothing of the scores. FOLDER keeps the scenes of ``shapes`` as
COCO has them, the weights (trained once, in 7 minutes of one core with AMX) and a suite, which is run: on each engine
the framework's own recipe stands beside qbench's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZE = 640
STRIDES = (8, 16, 32)
WIDTHS = (16, 32, 48, 64, 96)
HEAD = 48
CLASSES = 3
LONGEST = (130.0, 220.0, float("inf"))  # the longer side of what a scale finds, in pixels
EPOCHS, BATCH, SCENES, RATE = 8, 8, 1200, 3e-3
SUITE = """\
suite: collapse
models:
  - name: three-scales
    source: {{python: "{here}:build"}}
    weights: weights.safetensors
    postprocess: {{python: "{here}:find_boxes"}}
data:
  dataset: {{coco: scenes, size: [640, 640]}}
  calibrate: {{split: train, samples: 64}}
  evaluate: {{split: test}}
matrix:
  modes: [fp32, static]
  backends: [torch, onednn, fbgemm, qnnpack, inductor, onnxruntime, openvino, executorch]
recipe: [default, framework-default]
measure: {{precision: 5%, max_seconds: 5, cold_starts: 1}}
gate:
  latency: {{max_regression: 5%}}
  accuracy: {{metric: map, margin: 1.0}}
"""


def _convolution(before: int, width: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(before, width, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(width), nn.SiLU())


class Head(nn.Module):
    """Branches of their own for distances to the four sides, in strides, and for scores before the sigmoid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sides = nn.Sequential(_convolution(width, HEAD), nn.Conv2d(HEAD, 4, 1))
        self.scores = nn.Sequential(_convolution(width, HEAD), nn.Conv2d(HEAD, CLASSES, 1))
        nn.init.constant_(self.scores[1].bias, -4.0)
        nn.init.constant_(self.sides[1].bias, 4.0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(self.sides(x)), self.scores(x)


class Detector(nn.Module):
    """(n, 3, 640, 640) -> (n, 4 + classes, 8400): centre, width, height in pixels, and scores."""

    def __init__(self) -> None:
        super().__init__()
        first, second, fine, middle, coarse = WIDTHS
        self.stem = nn.Sequential(_convolution(3, first, 6, 4), _convolution(first, second, 3, 2))
        self.fine = _convolution(second, fine)
        self.middle = nn.Sequential(_convolution(fine, middle, 3, 2), _convolution(middle, middle))
        self.coarse = nn.Sequential(_convolution(middle, coarse, 3, 2), _convolution(coarse, coarse))
        self.join_middle = _convolution(middle + coarse, middle)
        self.join_fine = _convolution(fine + middle, fine)
        self.heads = nn.ModuleList([Head(fine), Head(middle), Head(coarse)])
        self.register_buffer("centres", torch.cat([_centres(stride) for stride in STRIDES], 1), False)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(self.stem(x)[:, :, : SIZE // 8, : SIZE // 8])
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.join_middle(torch.cat([middle, functional.interpolate(coarse, scale_factor=2.0)], 1))
        fine = self.join_fine(torch.cat([fine, functional.interpolate(middle, scale_factor=2.0)], 1))
        sides, scores = [], []
        for head, features, stride in zip(self.heads, (fine, middle, coarse), STRIDES, strict=True):
            distances, logits = head(features)
            sides.append(distances.flatten(2) * stride)
            scores.append(logits.flatten(2))
        before, behind = torch.cat(sides, 2).chunk(2, 1)
        return torch.cat([self.centres + (behind - before) / 2, before + behind, torch.cat(scores, 2).sigmoid()], 1)


def _centres(stride: int) -> Tensor:
    """The centres of the cells of a scale in pixels, (2, cells): x and y."""
    places = (torch.arange(SIZE // stride).float() + 0.5) * stride
    y, x = torch.meshgrid(places, places, indexing="ij")
    return torch.stack([x, y]).flatten(1)


def build() -> nn.Module:
    """The network, for ``source``."""
    return Detector()


def find_boxes(outputs: Any) -> list[Any]:
    """The boxes of each image, rows ``x1, y1, x2, y2, score, class``: its answer has the form of shapes-detector's."""
    from qbench.models import shapes_detector

    return shapes_detector.postprocess(outputs)


def write_scenes(folder: Path) -> None:
    """``shapes`` in COCO's layout: 64 scenes to calibrate, 500 to evaluate, 96 pixels each."""
    from PIL import Image

    for split, count in (("train", 64), ("test", 500)):
        images, labels = _draw(split, count)
        (folder / split).mkdir(parents=True, exist_ok=True)
        (folder / "annotations").mkdir(exist_ok=True)
        entries, annotations = [], []
        for number, (image, rows) in enumerate(zip(images, labels, strict=True)):
            name = f"{number:04d}.png"
            Image.fromarray(image.transpose(1, 2, 0)).save(folder / split / name)
            entries.append({"id": number, "file_name": name, "width": 96, "height": 96})
            for x1, y1, x2, y2, kind, _ in rows[rows[:, 4] >= 0].tolist():
                box = [x1, y1, x2 - x1, y2 - y1]
                annotations.append({"id": len(annotations) + 1, "image_id": number, "category_id": int(kind) + 1,
                                    "bbox": box, "area": box[2] * box[3], "iscrowd": 0})  # fmt: skip
        categories = [{"id": i + 1, "name": name} for i, name in enumerate(("disc", "square", "triangle"))]
        facts = {"images": entries, "annotations": annotations, "categories": categories}
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(facts))


def _draw(split: str, count: int) -> tuple[Any, Any]:
    from qbench.datasets import shapes

    examples = shapes.open_dataset(None, base=Path(), options={}).sample(split, count, 1)
    return examples.inputs[0], examples.labels


def train(file: Path) -> None:
    """Trains on scenes that are drawn here and enlarged to 640 pixels; multiplies in bfloat16."""
    images, labels = _draw("train", SCENES)
    pixels, targets = torch.from_numpy(images), torch.from_numpy(labels).float()
    targets[..., :4] *= SIZE / 96
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two wait for each other where the machine is shared
    module = Detector().to(memory_format=torch.channels_last).train()
    steps = EPOCHS * (SCENES // BATCH)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    begin = time.monotonic()
    for epoch in range(EPOCHS):
        total = 0.0
        for places in torch.randperm(SCENES)[: SCENES // BATCH * BATCH].split(BATCH):
            small = pixels[places].float() / 255
            x = functional.interpolate(small, (SIZE, SIZE), mode="bilinear").to(memory_format=torch.channels_last)
            with torch.autocast("cpu", torch.bfloat16):
                outputs = module(x)
            loss = compute_loss(outputs.float(), targets[places])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch + 1}: loss {total / (SCENES // BATCH):.3f}, {time.monotonic() - begin:.0f} s", flush=True)
    from qbench.models.weights import save_weights

    save_weights(module.eval(), file)


def compute_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Focal loss of the scores (a cell near the centre of the smallest object of its scale's size has its class) and
    generalized intersection over union of the boxes, by the number of such cells."""
    centres = torch.cat([_centres(stride) for stride in STRIDES], 1).T[None, :, None]
    strides = torch.cat([torch.full(((SIZE // s) ** 2,), float(s)) for s in STRIDES])[None, :, None]
    longest = torch.cat([torch.full(((SIZE // s) ** 2,), most) for s, most in zip(STRIDES, LONGEST, strict=True)])
    least = torch.cat([torch.full(((SIZE // s) ** 2,), most) for s, most in zip(STRIDES, (0, *LONGEST), strict=False)])
    boxes = targets[:, None]
    extent = boxes[..., 2:4] - boxes[..., :2]
    side = extent.amax(3)
    near = (centres - (boxes[..., :2] + boxes[..., 2:4]) / 2).abs().amax(3) < strides
    fits = near & (side <= longest[None, :, None]) & (side > least[None, :, None]) & (boxes[..., 4] >= 0)
    smallest, place = torch.where(fits, extent.prod(3), torch.inf).min(2)
    chosen = torch.isfinite(smallest)
    theirs = torch.gather(targets, 1, place[..., None].expand(-1, -1, targets.shape[2]))
    labels = functional.one_hot(theirs[..., 4].long().clamp(min=0), CLASSES).float() * chosen[..., None]
    scores = outputs[:, 4:].transpose(1, 2).clamp(1e-6, 1 - 1e-6)
    weight = torch.where(labels > 0, 0.25, 0.75) * (labels - scores).detach().abs() ** 2
    count = chosen.sum().clamp(min=1)
    entropy = functional.binary_cross_entropy(scores, labels, reduction="none") * weight
    centre, size = outputs[:, :2].transpose(1, 2)[chosen], outputs[:, 2:4].transpose(1, 2)[chosen]
    answers = torch.cat([centre - size / 2, centre + size / 2], 1)
    return entropy.sum() / count * 4 + 2 * (1 - _overlap(answers, theirs[..., :4][chosen])).sum() / count


def _overlap(boxes: Tensor, true: Tensor) -> Tensor:
    """Generalized intersection over union of pairs of boxes (k, 4)."""
    low, high = torch.minimum(boxes[:, :2], true[:, :2]), torch.maximum(boxes[:, 2:], true[:, 2:])
    common = (torch.minimum(boxes[:, 2:], true[:, 2:]) - torch.maximum(boxes[:, :2], true[:, :2])).clamp(min=0).prod(1)
    union = sum((pair[:, 2:] - pair[:, :2]).clamp(min=0).prod(1) for pair in (boxes, true)) - common
    hull = (high - low).clamp(min=1e-6).prod(1)
    return common / union.clamp(min=1e-6) - (hull - union) / hull


def main(folder: Path) -> int:
    """Makes what is missing and runs the suite; the exit code of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "scenes").exists():
        write_scenes(folder / "scenes")
    if not (folder / "weights.safetensors").exists():
        train(folder / "weights.safetensors")
    (folder / "collapse.yaml").write_text(SUITE.format(here=Path(__file__).resolve()))
    return subprocess.run([sys.executable, "-m", "qbench", "run", "collapse.yaml"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
