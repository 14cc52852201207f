"""``python -m qbench`` is ``qbench``."""

from qbench.cli.main import main

if __name__ == "__main__":
    main()
