"""int8 networks by torch: FX, eager, PT2E; static, dynamic and QAT."""
