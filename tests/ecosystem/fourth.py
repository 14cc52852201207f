"""The fourth list, chosen before any of it was tried: 28 networks for pictures, text, sound and series of numbers. See
``text_models`` for how a network stands here."""

from __future__ import annotations

from image_models import _square, _timm, _torchvision
from text_models import _LAST, _TOKENS, _transformers
from unseen_images import _DETR, _LOGITS, _STAGES, _VISION, _with_backbone
from unseen_sequences import _GROUPED, _HIDDEN_AND_LAYERS, _POSITIONS, _SEQ2SEQ, _SPECIAL, _two_towers

_OF_TIMM = ("mixnet_s", "gernet_s", "nextvit_small")
_SIZED = {
    "visformer_tiny": 224, "twins_svt_small": 224, "mvitv2_tiny": 224, "davit_tiny": 224, "focalnet_tiny_srf": 224,
    "tnt_s_legacy_patch16_224": 224, "convformer_s18": 224, "tiny_vit_5m_224": 224, "eva02_tiny_patch14_224": 224,
}  # fmt: skip
_TEXT = {
    "ibert": ("IBertModel", "IBertConfig", _POSITIONS),
    "starcoder2": ("Starcoder2Model", "Starcoder2Config", _GROUPED),
    "lfm2": (
        "Lfm2Model", "Lfm2Config",
        {**_GROUPED, "pad_token_id": 0, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    ),
    "mamba2": (
        "Mamba2Model", "Mamba2Config",
        {**_HIDDEN_AND_LAYERS, "state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 8,
         "use_cache": False},
    ),
    "gpt_oss": (
        "GptOssModel", "GptOssConfig",
        {**_GROUPED, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
}  # fmt: skip


def _depth_anything():
    import transformers

    backbone = transformers.Dinov2Config(
        **{**_VISION, "image_size": 56, "patch_size": 14, "num_hidden_layers": 4},
        out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False,
    )  # fmt: skip
    return _transformers(
        "DepthAnythingForDepthEstimation", "DepthAnythingConfig", backbone_config=backbone, patch_size=14,
        reassemble_hidden_size=64, neck_hidden_sizes=[16, 32, 32, 32], fusion_hidden_size=16, head_hidden_size=16,
    )()  # fmt: skip


NORM_BIAS = 1.0
NETWORKS = {
    **{name: (_timm(name), _square(64)) for name in _OF_TIMM},
    **{name: (_timm(name), _square(size)) for name, size in _SIZED.items()},
    **{name: (_transformers(model, config, **given), _TOKENS, _LAST) for name, (model, config, given) in _TEXT.items()},
    "fcos_resnet50_fpn": (
        _torchvision("fcos_resnet50_fpn", "models.detection", weights_backbone=None, min_size=64, max_size=64),
        _square(64),
    ),
    "s3d": (_torchvision("s3d", "models.video"), (("photo", 3, 16, 224, 224),)),
    "cvt": (
        _transformers("CvtForImageClassification", "CvtConfig", embed_dim=[16, 32, 64], num_heads=[1, 2, 4]),
        _square(64),
    ),
    "vit_msn": (_transformers("ViTMSNForImageClassification", "ViTMSNConfig", **_VISION), _square(64)),
    "depth_anything": (_depth_anything, _square(56), {"output": "predicted_depth"}),
    "conditional_detr": (
        _with_backbone("ConditionalDetrForObjectDetection", "ConditionalDetrConfig", **_DETR), _square(64), _LOGITS,
    ),
    "regnet": (
        _transformers("RegNetForImageClassification", "RegNetConfig", embedding_size=16, groups_width=16, **_STAGES),
        _square(64),
    ),
    "pegasus": (
        _transformers("PegasusForConditionalGeneration", "PegasusConfig", **_SEQ2SEQ, **_SPECIAL,
                      decoder_start_token_id=0, max_position_embeddings=64),
        (("tokens", 16), ("tokens", 12)),
        {"inputs": "{input_ids: {axis: 0}, decoder_input_ids: {axis: 0}}", **_LOGITS},
    ),
    "encodec": (
        lambda: (
            _transformers("EncodecModel", "EncodecConfig", num_filters=8, hidden_size=32, codebook_dim=32)().encoder
        ),
        (("vector", 1, 3200),),
    ),
    "git": (
        _transformers("GitForCausalLM", "GitConfig", **_POSITIONS, vision_config=_VISION, pad_token_id=0,
                      bos_token_id=1, eos_token_id=2, use_cache=False),
        (("tokens", 16), ("photo", 3, 64, 64)),
        {"inputs": "{input_ids: {axis: 0}, pixel_values: {axis: 0}}", **_LOGITS},
    ),
    "chinese_clip": (
        _two_towers("ChineseCLIPModel", "ChineseCLIPConfig", {"max_position_embeddings": 64}, {}, projection_dim=32),
        (("tokens", 16), ("photo", 3, 64, 64)),
        {"inputs": "{input_ids: {axis: 0}, pixel_values: {axis: 0}}", "output": "text_embeds"},
    ),
}  # fmt: skip
