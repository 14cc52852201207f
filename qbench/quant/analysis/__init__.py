"""Where accuracy is lost: layer errors, ranges, clipping, inputs unlike those of the calibration."""
