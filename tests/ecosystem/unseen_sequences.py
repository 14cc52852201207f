"""The second list, chosen before any of it was tried: text, sound, pictures with text, series of numbers."""

from __future__ import annotations

from text_models import _LAST, _SMALL, _TOKENS, _transformers

_LOGITS = {"output": "logits"}
_POSITIONS = {**_SMALL, "max_position_embeddings": 64}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_HIDDEN_AND_LAYERS = {key: _SMALL[key] for key in ("hidden_size", "num_hidden_layers", "vocab_size")}
_TOWER = {key: _SMALL[key] for key in _SMALL if key != "vocab_size"}
_SEQ2SEQ = {
    "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 120,
}  # fmt: skip
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TEXT = {
    "xlnet": (
        "XLNetModel", "XLNetConfig", {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128, "vocab_size": 120},
    ),
    "mobilebert": (
        "MobileBertModel", "MobileBertConfig",
        {**_SMALL, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    ),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {**_SMALL, "embedding_size": 64}),
    "convbert": ("ConvBertModel", "ConvBertConfig", {**_SMALL, "embedding_size": 64}),
    "fnet": ("FNetModel", "FNetConfig", _POSITIONS),
    "longformer": ("LongformerModel", "LongformerConfig", {**_POSITIONS, "attention_window": 8, "pad_token_id": 0}),
    "nystromformer": (
        "NystromformerModel", "NystromformerConfig", {**_POSITIONS, "segment_means_seq_len": 16, "num_landmarks": 4},
    ),
    "gptj": ("GPTJModel", "GPTJConfig", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 120, "rotary_dim": 8}),
    "falcon": ("FalconModel", "FalconConfig", _POSITIONS),
    "mamba": ("MambaModel", "MambaConfig", {**_HIDDEN_AND_LAYERS, "state_size": 8, "use_cache": False}),
    "mixtral": (
        "MixtralModel", "MixtralConfig", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "qwen3": ("Qwen3Model", "Qwen3Config", {**_GROUPED, "head_dim": 16}),
    "gemma3": ("Gemma3TextModel", "Gemma3TextConfig", {**_GROUPED, "head_dim": 16, "sliding_window": 8}),
}  # fmt: skip


def _two_towers(model, config, text, vision, **arguments):
    """A network of two towers, whose sizes are given for each."""
    return _transformers(
        model, config, text_config={**_TOWER, "vocab_size": 120, **text},
        vision_config={**_TOWER, "image_size": 64, "patch_size": 16, **vision}, **arguments,
    )  # fmt: skip


_TEXT_AND_IMAGE = (("tokens", 16), ("photo", 3, 64, 64), ("ones", 16))
_NAMED = "{input_ids: {axis: 0}, pixel_values: {axis: 0}, attention_mask: {axis: 0}}"
NETWORKS = {
    **{name: (_transformers(model, config, **given), _TOKENS, _LAST) for name, (model, config, given) in _TEXT.items()},
    "bart": (
        _transformers("BartForConditionalGeneration", "BartConfig", **_SEQ2SEQ, **_SPECIAL, decoder_start_token_id=2),
        _TOKENS, _LOGITS,
    ),
    "wavlm": (
        _transformers("WavLMForCTC", "WavLMConfig", **_SMALL, conv_dim=(32,) * 7), (("vector", 4000),), _LOGITS,
    ),
    "audio_spectrogram": (
        _transformers("ASTForAudioClassification", "ASTConfig", **_TOWER, max_length=64, num_mel_bins=32),
        (("vector", 64, 32),), _LOGITS,
    ),
    "speech_to_text": (
        _transformers("Speech2TextForConditionalGeneration", "Speech2TextConfig", **_SEQ2SEQ, **_SPECIAL,
                      decoder_start_token_id=2, conv_channels=32, input_feat_per_channel=40),
        (("vector", 64, 40), ("tokens", 12)),
        {"inputs": "{input_features: {axis: 0}, decoder_input_ids: {axis: 0}}", **_LOGITS},
    ),
    "clip": (
        _two_towers("CLIPModel", "CLIPConfig", {"eos_token_id": 2}, {}, projection_dim=32), _TEXT_AND_IMAGE,
        {"inputs": _NAMED, "output": "image_embeds"},
    ),
    "clipseg": (
        _two_towers("CLIPSegForImageSegmentation", "CLIPSegConfig", {"eos_token_id": 2}, {}, projection_dim=32,
                    extract_layers=[0, 1], reduce_dim=32, decoder_num_attention_heads=4,
                    decoder_intermediate_size=64, conditional_layer=0),
        _TEXT_AND_IMAGE, {"inputs": _NAMED, **_LOGITS},
    ),
    "vilt": (
        _transformers("ViltForQuestionAnswering", "ViltConfig", **_POSITIONS, image_size=64, patch_size=16,
                      max_image_length=-1),
        _TEXT_AND_IMAGE, {"inputs": _NAMED, **_LOGITS},
    ),
    "layoutlm": (
        _transformers("LayoutLMForTokenClassification", "LayoutLMConfig", **_POSITIONS, max_2d_position_embeddings=128),
        (("tokens", 16), ("ones", 16, 4)), {"inputs": "{input_ids: {axis: 0}, bbox: {axis: 0}}", **_LOGITS},
    ),
    "patchtst": (
        _transformers("PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=3, context_length=32,
                      patch_length=8, patch_stride=8, prediction_length=8, d_model=64, num_hidden_layers=2,
                      num_attention_heads=4, ffn_dim=128, loss="mse"),
        (("vector", 32, 3),), {"output": "prediction_outputs"},
    ),
}  # fmt: skip
