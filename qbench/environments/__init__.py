"""Sets of libraries other than the present one, under which artifacts are built and run."""
