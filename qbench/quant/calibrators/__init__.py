"""Calibrators: the values of a tensor, batch by batch, in bounded memory -> the range that is quantized."""
