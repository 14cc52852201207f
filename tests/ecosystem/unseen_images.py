"""The second list, chosen before any of it was tried: pictures. See ``text_models`` for how a network stands here."""

from __future__ import annotations

import stand_ins
from detectors import _ultralytics
from image_models import _square, _timm, _torchvision
from text_models import _transformers


def _maxvit():
    """torchvision's MaxViT, which takes one size of picture, at 64 px."""
    stand_ins.install()
    from torchvision.models.maxvit import MaxVit

    return MaxVit(
        input_size=(64, 64),
        stem_channels=16,
        partition_size=4,
        block_channels=[16, 32],
        block_layers=[1, 1],
        head_dim=8,
        stochastic_depth_prob=0.0,
        num_classes=100,
    )


_IMAGE, _LOGITS = _square(64), {"output": "logits"}
_STAGES = {"hidden_sizes": [16, 32, 64, 64], "depths": [1, 1, 1, 1]}
_VISION = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip
_DETR = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 10,
}  # fmt: skip


def _with_backbone(model, config, *, levels=1, **arguments):
    """A detector or a segmentation network on a small ResNet of transformers' own."""

    def build():
        import transformers

        stages = ["stage1", "stage2", "stage3", "stage4"]
        backbone = transformers.ResNetConfig(
            embedding_size=16, layer_type="basic", out_features=stages[-levels:], **_STAGES
        )
        return _transformers(model, config, backbone_config=backbone, **arguments)()

    return build


_OF_TIMM = (
    *("efficientvit_b0", "fasternet_t0", "starnet_s1", "inception_next_atto", "ghostnetv2_100", "mambaout_femto"),
    *("ese_vovnet19b_dw", "gcresnext26ts", "repvit_m0_9", "hgnetv2_b0", "xception41", "pvt_v2_b0"),
)
_SIZED = {"crossvit_tiny_240": 240, "gmlp_s16_224": 224, "convit_tiny": 224, "sequencer2d_s": 224, "botnet26t_256": 256}
NORM_BIAS = 1.0
NETWORKS = {
    **{name: (_timm(name), _IMAGE) for name in _OF_TIMM},
    **{name: (_timm(name), _square(size)) for name, size in _SIZED.items()},
    "inception_v3": (_torchvision("inception_v3", aux_logits=False, init_weights=False), _square(96)),
    "maxvit": (_maxvit, _IMAGE),
    "deeplabv3_mobilenet_v3_large": (
        _torchvision("deeplabv3_mobilenet_v3_large", "models.segmentation", weights_backbone=None, num_classes=8),
        _IMAGE, {"output": "out"},
    ),
    "ssdlite320_mobilenet_v3_large": (
        _torchvision("ssdlite320_mobilenet_v3_large", "models.detection", weights_backbone=None), _IMAGE,
    ),
    "yolov9t": (_ultralytics("yolov9t.yaml"), _IMAGE, {"output": "0"}),
    "yolov10n": (_ultralytics("yolov10n.yaml"), _IMAGE, {"output": "0"}),
    "detr": (_with_backbone("DetrForObjectDetection", "DetrConfig", **_DETR), _IMAGE, _LOGITS),
    "upernet": (
        _with_backbone("UperNetForSemanticSegmentation", "UperNetConfig", levels=4, hidden_size=32,
                       auxiliary_channels=16, auxiliary_in_channels=64),
        _IMAGE, _LOGITS,
    ),
    "dpt": (
        _transformers("DPTForDepthEstimation", "DPTConfig", **{**_VISION, "num_hidden_layers": 4},
                      backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 32, 32, 32], fusion_hidden_size=16),
        _IMAGE, {"output": "predicted_depth"},
    ),
    "beit": (_transformers("BeitForImageClassification", "BeitConfig", **_VISION), _IMAGE),
    "videomae": (
        _transformers("VideoMAEForVideoClassification", "VideoMAEConfig", **_VISION, num_frames=4),
        (("photo", 4, 3, 64, 64),),
    ),
}  # fmt: skip
