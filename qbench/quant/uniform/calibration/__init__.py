"""Activations, batch by batch -> their ranges.

calibration_model       prepared graph + config -> a model that also gives its activations
calibrate session       calibration model + data -> record, by qbench or in the user's own loop, through
  feed pieces collect scales
"""
