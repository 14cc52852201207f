"""The scales and integers of weights, and what calibration may change of them.

weight_scales       ARQ: scales by the absolute maximum; integers and back
narrow_steps        scales so wide that no sum of two products leaves 16 bits
weight_steps        the steps below, each of which rewrites the calibration model whole
balance             scales moved from activations into weights
balance_error       whether that helps
input_samples       rows of a layer's input
adaround            rounding that keeps a layer's output
mean_inputs         what layers are given on average, and the mean error that rounded weights make of it
bias_correction     the mean error of a layer's output, taken out of its bias
"""
