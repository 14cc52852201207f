"""A graph from the wild -> an equal one that can be quantized, and which of its layers can be.

graph skeleton tensor_proto     an ONNX model that is being rewritten; a graph without large weights
prepare                         the steps in order:
  names opset half constants gemm pads fusion, each proven by equal
layers                          which layers can be quantized, and why the others stay float
"""
