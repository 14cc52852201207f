"""Activations, batch by batch -> their ranges.

calibration_model   prepared graph + config -> a model that also gives its activations
calibrate           calibration model + data -> record
session             the same in a loop of the user's own
batches             a user's batches -> what a session, or another process, takes
chunks              a batch cut into parts of bounded memory
collector           values -> calibrators -> scales
scales              what calibration knows -> a complete record
"""
