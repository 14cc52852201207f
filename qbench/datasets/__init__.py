"""Data sets: built-in and loaders for a user's own; ``base`` is the contract."""
