"""Metrics: scores of outputs against labels; ``base`` is the contract."""
