"""The third list, chosen before any of it was tried: text, sound, pictures with text, series of numbers."""

from __future__ import annotations

from text_models import _LAST, _SMALL, _TOKENS, _transformers
from unseen_sequences import _GROUPED, _HIDDEN_AND_LAYERS, _LOGITS, _POSITIONS, _SEQ2SEQ, _two_towers

_TEXT = {
    "roformer": ("RoFormerModel", "RoFormerConfig", {**_POSITIONS, "embedding_size": 64}),
    "funnel": (
        "FunnelModel", "FunnelConfig",
        {"d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128, "block_sizes": [1, 1], "num_decoder_layers": 1,
         "vocab_size": 120},
    ),
    "rembert": (
        "RemBertModel", "RemBertConfig",
        {**_POSITIONS, "input_embedding_size": 32, "output_embedding_size": 64, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "deberta": (
        "DebertaModel", "DebertaConfig", {**_POSITIONS, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "esm": (
        "EsmModel", "EsmConfig",
        {**_POSITIONS, "position_embedding_type": "rotary", "pad_token_id": 0, "mask_token_id": 119},
    ),
    "canine": (
        "CanineModel", "CanineConfig",
        {**{key: _SMALL[key] for key in _SMALL if key != "vocab_size"}, "max_position_embeddings": 64,
         "num_hash_buckets": 64},
    ),
    "gpt_neo": (
        "GPTNeoModel", "GPTNeoConfig",
        {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
         "window_size": 8, "vocab_size": 120, "max_position_embeddings": 64},
    ),
    "codegen": (
        "CodeGenModel", "CodeGenConfig", {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "vocab_size": 120},
    ),
    "olmo2": ("Olmo2Model", "Olmo2Config", _GROUPED),
    "phi3": ("Phi3Model", "Phi3Config", {**_GROUPED, "pad_token_id": 0}),
    "gemma2": ("Gemma2Model", "Gemma2Config", {**_GROUPED, "head_dim": 16, "sliding_window": 8}),
    "qwen2_moe": (
        "Qwen2MoeModel", "Qwen2MoeConfig",
        {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
         "shared_expert_intermediate_size": 64},
    ),
    "rwkv": (
        "RwkvModel", "RwkvConfig",
        {**_HIDDEN_AND_LAYERS, "attention_hidden_size": 64, "intermediate_size": 128, "use_cache": False},
    ),
}  # fmt: skip


def _named(*inputs):
    """Data bound to inputs by name, in the order of a network's kinds."""
    return {"inputs": f"{{{', '.join(f'{name}: {{axis: 0}}' for name in inputs)}}}"}


_VISIBLE = ("photo", 3, 64, 64)
NETWORKS = {
    **{name: (_transformers(model, config, **given), _TOKENS, _LAST) for name, (model, config, given) in _TEXT.items()},
    "marian": (
        _transformers("MarianMTModel", "MarianConfig", **_SEQ2SEQ, decoder_vocab_size=120, pad_token_id=0,
                      eos_token_id=2, forced_eos_token_id=2, decoder_start_token_id=0),
        (("tokens", 16), ("tokens", 12)), {**_named("input_ids", "decoder_input_ids"), **_LOGITS},
    ),
    "longt5": (
        _transformers("LongT5EncoderModel", "LongT5Config", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                      local_radius=7, vocab_size=120),
        (("tokens", 32),), _LAST,
    ),
    "moonshine": (
        _transformers("MoonshineForConditionalGeneration", "MoonshineConfig", vocab_size=120, hidden_size=64,
                      intermediate_size=128, encoder_num_hidden_layers=2, decoder_num_hidden_layers=1,
                      encoder_num_attention_heads=4, decoder_num_attention_heads=4, encoder_num_key_value_heads=4,
                      decoder_num_key_value_heads=4),
        (("vector", 4000), ("tokens", 12)), {**_named("input_values", "decoder_input_ids"), **_LOGITS},
    ),
    "sew": (_transformers("SEWForCTC", "SEWConfig", **_SMALL, conv_dim=(32,) * 13), (("vector", 4000),), _LOGITS),
    "wav2vec2_conformer": (
        _transformers("Wav2Vec2ConformerForCTC", "Wav2Vec2ConformerConfig", **_SMALL, conv_dim=(32,) * 7),
        (("vector", 4000),), _LOGITS,
    ),
    "hifigan": (
        _transformers("SpeechT5HifiGan", "SpeechT5HifiGanConfig", upsample_initial_channel=64), (("vector", 40, 80),),
    ),
    "siglip": (
        _two_towers("SiglipModel", "SiglipConfig", {"max_position_embeddings": 16, "projection_size": 64}, {}),
        (("tokens", 16), _VISIBLE), {**_named("input_ids", "pixel_values"), "output": "text_embeds"},
    ),
    "owlvit": (
        _two_towers("OwlViTForObjectDetection", "OwlViTConfig", {"max_position_embeddings": 16}, {}, projection_dim=64),
        (("tokens", 16), _VISIBLE), {**_named("input_ids", "pixel_values"), **_LOGITS},
    ),
    "blip": (
        _two_towers("BlipForImageTextRetrieval", "BlipConfig", {"encoder_hidden_size": 64, "projection_dim": 32},
                    {"initializer_range": 0.02}, projection_dim=32, image_text_hidden_size=32),
        (("tokens", 16), _VISIBLE), {**_named("input_ids", "pixel_values"), "output": "itm_score"},
    ),
    "layoutlmv3": (
        _transformers("LayoutLMv3ForTokenClassification", "LayoutLMv3Config", **_SMALL, coordinate_size=12,
                      shape_size=8, input_size=64),
        (("tokens", 16), ("ones", 16, 4), _VISIBLE), {**_named("input_ids", "bbox", "pixel_values"), **_LOGITS},
    ),
    "patchtsmixer": (
        _transformers("PatchTSMixerForPrediction", "PatchTSMixerConfig", num_input_channels=3, context_length=32,
                      patch_length=8, patch_stride=8, prediction_length=8, d_model=16, num_layers=2),
        (("vector", 32, 3),), {"output": "prediction_outputs"},
    ),
    "time_series_transformer": (
        _transformers("TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", prediction_length=8,
                      context_length=24, lags_sequence=[1, 2, 3], num_time_features=2),
        (("vector", 27), ("vector", 27, 2), ("ones", 27), ("vector", 8), ("vector", 8, 2)),
        {**_named("past_values", "past_time_features", "past_observed_mask", "future_values", "future_time_features"),
         **_LAST},
    ),
}  # fmt: skip
