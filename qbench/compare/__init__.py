"""Stage 7: two runs, or the calibration seeds of one, compared case by case."""
