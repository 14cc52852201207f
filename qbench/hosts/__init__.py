"""Hosts: where artifacts are evaluated and measured; ``base`` is the contract, ``read_back`` what kernels say."""
