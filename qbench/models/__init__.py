"""Models: built-ins and the sources that load a user's own; ``base`` is the contract."""
