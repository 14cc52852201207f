"""The story of a run and its stages."""
