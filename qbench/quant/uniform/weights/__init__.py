"""The scales and integers of weights, and what calibration may change of them.

weights                 ARQ: scales by the absolute maximum; q <-> w
steps                   each rewrites the calibration model whole; which are done stands in it
balance balance_judge   scales moved from activations into weights, where that helps
samples adaround        rows of a layer's input, and rounding that keeps its output
bias                    the mean error of a layer's output, taken out of its bias
"""
