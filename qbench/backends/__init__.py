"""Backends: what builds and runs an artifact; ``base`` is the contract."""
