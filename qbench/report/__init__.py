"""Records of a run turned into tables, plots and one HTML file."""
