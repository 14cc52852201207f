"""The core quantization pipeline: from an fp32 network to a proven int8 artifact."""
