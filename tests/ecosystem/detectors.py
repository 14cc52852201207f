"""Detectors of ultralytics, built from their own descriptions with random weights (its licence is AGPL: it is installed
for these trials alone, and nothing of it is here)."""

from __future__ import annotations

import stand_ins


def _ultralytics(description, kind="DetectionModel"):
    def build():
        stand_ins.install()
        from ultralytics.nn import tasks

        return getattr(tasks, kind)(description, verbose=False)

    return build


_IMAGE = (("photo", 3, 64, 64),)
NORM_BIAS = 1.0
NETWORKS = {
    "yolov5n": (_ultralytics("yolov5n.yaml"), _IMAGE, {"output": "0"}),
    "yolov8n": (_ultralytics("yolov8n.yaml"), _IMAGE, {"output": "0"}),
    "yolo11n": (_ultralytics("yolo11n.yaml"), _IMAGE, {"output": "0"}),
    "yolov8n_cls": (_ultralytics("yolov8n-cls.yaml", "ClassificationModel"), _IMAGE, {"output": "0"}),
    "yolov8n_seg": (_ultralytics("yolov8n-seg.yaml", "SegmentationModel"), _IMAGE, {"output": '"0.0"'}),
}
