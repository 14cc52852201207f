"""The third list, chosen before any of it was tried: pictures. See ``text_models`` for how a network stands here."""

from __future__ import annotations

from detectors import _ultralytics
from image_models import _square, _timm, _torchvision
from text_models import _transformers
from unseen_images import _LOGITS, _STAGES, _VISION

_PYRAMID = ["stage1", "stage2", "stage3", "stage4"]


def _on(backbone, model, config, *, levels, sizes, **arguments):
    """A detector or a segmentation network on a small backbone, whose ``levels`` last stages it reads."""

    def build():
        import transformers

        stages = getattr(transformers, backbone)(out_features=_PYRAMID[-levels:], **sizes)
        return _transformers(model, config, backbone_config=stages, **arguments)()

    return build


_OF_TIMM = (
    *("repghostnet_050", "dpn48b", "nf_regnet_b0", "cs3darknet_focus_s", "legacy_seresnext26_32x4d", "shvit_s1"),
)  # fmt: skip
_SIZED = {
    "swiftformer_xs": 224, "pit_ti_224": 224, "efficientformerv2_s0": 224, "halonet26t": 256, "coat_lite_tiny": 224,
    "hiera_tiny_224": 224,
}  # fmt: skip
_SWIN = {
    "image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 4],
    "window_size": 4,
}  # fmt: skip
NORM_BIAS = 1.0
NETWORKS = {
    **{name: (_timm(name), _square(64)) for name in _OF_TIMM},
    **{name: (_timm(name), _square(size)) for name, size in _SIZED.items()},
    "deeplabv3_resnet50": (
        _torchvision("deeplabv3_resnet50", "models.segmentation", weights_backbone=None, num_classes=8),
        _square(64), {"output": "out"},
    ),
    "retinanet_resnet50_fpn": (
        _torchvision("retinanet_resnet50_fpn", "models.detection", weights_backbone=None, min_size=64, max_size=64),
        _square(64),
    ),
    "raft_small": (
        _torchvision("raft_small", "models.optical_flow"), (*_square(128), *_square(128)), {"output": "11"},
    ),
    "mc3_18": (_torchvision("mc3_18", "models.video"), (("photo", 3, 8, 32, 32),)),
    "yolo12n": (_ultralytics("yolo12n.yaml"), _square(64), {"output": "0"}),
    "yolo11n_pose": (_ultralytics("yolo11n-pose.yaml", "PoseModel"), _square(64), {"output": "0"}),
    "rt_detr": (
        _on("RTDetrResNetConfig", "RTDetrForObjectDetection", "RTDetrConfig", levels=3,
            sizes={"embedding_size": 16, "layer_type": "basic", **_STAGES}, encoder_in_channels=[32, 64, 64],
            encoder_hidden_dim=32, encoder_ffn_dim=64, encoder_attention_heads=4, d_model=32,
            decoder_in_channels=[32, 32, 32], decoder_ffn_dim=64, decoder_layers=1, decoder_attention_heads=4,
            num_queries=10),
        _square(64), _LOGITS,
    ),
    "mask2former": (
        _on("SwinConfig", "Mask2FormerForUniversalSegmentation", "Mask2FormerConfig", levels=4, sizes=_SWIN,
            feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=64, dim_feedforward=64,
            encoder_layers=1, decoder_layers=2, num_attention_heads=4, num_queries=10),
        _square(64), {"output": "masks_queries_logits"},
    ),
    "glpn": (
        _transformers("GLPNForDepthEstimation", "GLPNConfig", **_STAGES, num_attention_heads=[1, 2, 4, 4],
                      decoder_hidden_size=32),
        _square(64), {"output": "predicted_depth"},
    ),
    "swin2sr": (
        _transformers("Swin2SRForImageSuperResolution", "Swin2SRConfig", image_size=32, embed_dim=32, depths=[2, 2],
                      num_heads=[4, 4]),
        _square(32), {"output": "reconstruction"},
    ),
    "sam_vision": (
        _transformers("SamVisionModel", "SamVisionConfig", **{**_VISION, "image_size": 128}, window_size=4,
                      global_attn_indexes=[1], output_channels=32, mlp_dim=128, initializer_range=0.02),
        _square(128), {"output": "last_hidden_state"},
    ),
    "mobilevitv2_seg": (
        _transformers("MobileViTV2ForSemanticSegmentation", "MobileViTV2Config", image_size=64, width_multiplier=0.5,
                      num_labels=8),
        _square(64), _LOGITS,
    ),
    "timesformer": (
        _transformers("TimesformerForVideoClassification", "TimesformerConfig", **_VISION, num_frames=4),
        (("photo", 4, 3, 64, 64),),
    ),
}  # fmt: skip
