"""Metrics: scores of outputs against labels, or against fp32's outputs; ``base`` is the contract."""
