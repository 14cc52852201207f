"""This machine, read and measured: CPU, instruction sets, peak, noise."""
