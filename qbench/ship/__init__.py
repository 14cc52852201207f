"""A chosen case as a folder that is deployed without qbench."""
