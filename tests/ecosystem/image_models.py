"""Networks for pictures of torchvision and timm, with random weights and small pictures."""

from __future__ import annotations

import stand_ins


def _torchvision(name, group="models", **arguments):
    def build():
        stand_ins.install()
        import importlib

        return getattr(importlib.import_module(f"torchvision.{group}"), name)(weights=None, **arguments)

    return build


def _timm(name, **arguments):
    def build():
        stand_ins.install()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=100, **arguments)

    return build


def _square(size):
    return (("photo", 3, size, size),)


_CLASSIFIERS = (
    *("alexnet", "vgg11_bn", "squeezenet1_1", "resnet18", "resnet50", "resnext50_32x4d", "densenet121"),
    *("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_v2_s"),
    *("shufflenet_v2_x1_0", "mnasnet1_0", "regnet_y_400mf", "convnext_tiny", "swin_t", "swin_v2_t"),
)
_OF_TIMM = (
    *("mobilevit_xxs", "edgenext_xx_small", "tf_efficientnet_lite0", "ghostnet_100", "hardcorenas_a", "lcnet_050"),
    *("mobileone_s0", "repvgg_a0", "convnextv2_atto", "poolformer_s12", "fastvit_t8"),
    *("tinynet_e", "rexnet_100", "resnetv2_50", "res2net50_26w_4s", "eca_nfnet_l0", "dla34", "hrnet_w18_small"),
    *(
        "mobilenetv4_conv_small",
        "selecsls42b",
        "cspdarknet53",
        "semnasnet_075",
        "fbnetc_100",
        "resnest14d",
        "skresnet18",
    ),
)
_SIZED = {
    "vit_tiny_patch16_224": 64,
    "deit_tiny_patch16_224": 64,
    "efficientformer_l1": 224,
    "mixer_s32_224": 224,
    "resmlp_12_224": 224,
    "xcit_nano_12_p16_224": 64,
    "levit_128s": 224,
    "coatnet_nano_rw_224": 224,
    "cait_xxs24_224": 224,
}
NORM_BIAS = 1.0
NETWORKS = {
    **{name: (_torchvision(name), _square(64)) for name in _CLASSIFIERS},
    "vit_b_16": (_torchvision("vit_b_16", image_size=64), _square(64)),
    "googlenet": (_torchvision("googlenet", aux_logits=False, init_weights=False), _square(64)),
    "fcn_resnet50": (
        _torchvision("fcn_resnet50", "models.segmentation", weights_backbone=None, num_classes=8), _square(64),
    ),
    "lraspp_mobilenet_v3_large": (
        _torchvision("lraspp_mobilenet_v3_large", "models.segmentation", weights_backbone=None, num_classes=8),
        _square(64),
    ),
    "fasterrcnn_mobilenet_v3_large_320_fpn": (
        _torchvision("fasterrcnn_mobilenet_v3_large_320_fpn", "models.detection", weights_backbone=None), _square(64),
    ),
    "r3d_18": (_torchvision("r3d_18", "models.video"), (("photo", 3, 8, 32, 32),)),
    **{name: (_timm(name), _square(64)) for name in _OF_TIMM},
    **{
        name: (_timm(name, **({"img_size": size} if size == 64 else {})), _square(size))
        for name, size in _SIZED.items()
    },
}  # fmt: skip
