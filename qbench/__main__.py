"""``python -m qbench`` is ``qbench``."""

from qbench.cli import main

if __name__ == "__main__":
    main()
