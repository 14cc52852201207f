"""Transformers for text, pictures and sound, of small configurations with random weights."""

from __future__ import annotations

import stand_ins

_SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 120,
}
_TOKENS = (("tokens", 16),)


def _transformers(model, config, **arguments):
    def build():
        stand_ins.install()  # transformers looks for torchvision
        import torch
        import transformers

        torch.manual_seed(0)
        return getattr(transformers, model)(getattr(transformers, config)(**arguments))

    return build


def _sentence_transformer():
    """Takes a dict, gives a dict."""
    stand_ins.install()
    from sentence_transformers import models
    from torch import nn

    encoder = _transformers("BertModel", "BertConfig", **_SMALL)()

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.pooling = encoder, models.Pooling(64)

        def forward(self, features):
            words = self.encoder(**features).last_hidden_state
            return self.pooling({"token_embeddings": words, "attention_mask": features["attention_mask"]})

    return Embedding()


_LAST = {"output": "last_hidden_state"}
_ENCODERS = {
    "bert": ("BertModel", "BertConfig", {**_SMALL, "max_position_embeddings": 64}),
    "roberta": ("RobertaModel", "RobertaConfig", {**_SMALL, "max_position_embeddings": 64}),
    "electra": ("ElectraModel", "ElectraConfig", {**_SMALL, "embedding_size": 64}),
    "albert": ("AlbertModel", "AlbertConfig", {**_SMALL, "embedding_size": 32}),
    "mpnet": ("MPNetModel", "MPNetConfig", _SMALL),
    "deberta_v2": ("DebertaV2Model", "DebertaV2Config", _SMALL),
    "camembert": ("CamembertModel", "CamembertConfig", _SMALL),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**_SMALL, "pad_token_id": 0}),
    "gpt2": ("GPT2Model", "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 120}),
    "llama": ("LlamaModel", "LlamaConfig", _SMALL),
    "mistral": ("MistralModel", "MistralConfig", {**_SMALL, "num_key_value_heads": 2}),
    "qwen2": ("Qwen2Model", "Qwen2Config", {**_SMALL, "num_key_value_heads": 2}),
    "gemma": ("GemmaModel", "GemmaConfig", {**_SMALL, "num_key_value_heads": 2, "head_dim": 16}),
    "phi": ("PhiModel", "PhiConfig", _SMALL),
    "opt": ("OPTModel", "OPTConfig", {**_SMALL, "ffn_dim": 128, "word_embed_proj_dim": 64}),
    "bloom": ("BloomModel", "BloomConfig", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 120}),
    "gpt_neox": ("GPTNeoXModel", "GPTNeoXConfig", _SMALL),
    "t5_encoder": (
        "T5EncoderModel",
        "T5Config",
        {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "vocab_size": 120},
    ),
}
_VISION = {**{key: _SMALL[key] for key in _SMALL if key != "vocab_size"}, "image_size": 64, "patch_size": 16}
_IMAGE = (("photo", 3, 64, 64),)
_SOUND = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "conv_dim": (32,) * 7,
}
NETWORKS = {
    **{
        name: (_transformers(model, config, **given), _TOKENS, _LAST)
        for name, (model, config, given) in _ENCODERS.items()
    },
    "distilbert": (
        _transformers(
            "DistilBertModel", "DistilBertConfig", dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=120
        ),
        _TOKENS,
        {},
    ),
    "bert_classifier": (_transformers("BertForSequenceClassification", "BertConfig", **_SMALL), _TOKENS, {}),
    "sentence_transformer": (
        _sentence_transformer,
        (("tokens", 16), ("ones", 16)),
        {"inputs": "{input_ids: {axis: 0}, attention_mask: {axis: 0}}", "output": "sentence_embedding"},
    ),
    "vit": (_transformers("ViTModel", "ViTConfig", **_VISION), _IMAGE, _LAST),
    "deit": (_transformers("DeiTModel", "DeiTConfig", **_VISION), _IMAGE, _LAST),
    "dinov2": (_transformers("Dinov2Model", "Dinov2Config", **_VISION), _IMAGE, _LAST),
    "clip_vision": (_transformers("CLIPVisionModel", "CLIPVisionConfig", **_VISION), _IMAGE, _LAST),
    "siglip_vision": (_transformers("SiglipVisionModel", "SiglipVisionConfig", **_VISION), _IMAGE, _LAST),
    "segformer": (
        _transformers(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            hidden_sizes=[16, 32, 64, 64],
            depths=[1] * 4,
            decoder_hidden_size=64,
        ),
        _IMAGE,
        {},
    ),
    "mobilevit_hf": (_transformers("MobileViTForImageClassification", "MobileViTConfig", image_size=64), _IMAGE, {}),
    "yolos": (_transformers("YolosModel", "YolosConfig", **{**_VISION, "image_size": [64, 64]}), _IMAGE, _LAST),
    "wav2vec2": (_transformers("Wav2Vec2Model", "Wav2Vec2Config", **_SOUND), (("vector", 4000),), _LAST),
    "hubert": (_transformers("HubertModel", "HubertConfig", **_SOUND), (("vector", 4000),), _LAST),
    "whisper_encoder": (
        lambda: (
            _transformers(
                "WhisperModel",
                "WhisperConfig",
                d_model=64,
                encoder_layers=2,
                decoder_layers=1,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_ffn_dim=128,
                decoder_ffn_dim=128,
                vocab_size=120,
                pad_token_id=0,
                bos_token_id=0,
                eos_token_id=0,
                decoder_start_token_id=0,
                max_source_positions=50,
            )().encoder
        ),
        (("vector", 80, 100),),
        _LAST,
    ),
}
