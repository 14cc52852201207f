"""Any ONNX graph -> an equal one that can be quantized, and which of its layers can be.

graph               an ONNX model that is being rewritten
without_weights     a graph without its large weights, for what onnx does in C++
tensor_proto        tensors and declared sizes as numpy knows them
prepare             the steps in order, each proven by ``equivalence``:
names               every node has a name of its own
branches            an If whose condition is known gives way to its branch
fp16                half precision -> float32
constants           what is constant becomes an initializer
gemm                Gemm as quantization wants it
pads                zero padding joins its convolution
fusion              BatchNorm, Mul and Add of constants join the layer before
known_values        what follows from constants and declared sizes
tensor_sources      from which inputs a tensor follows
layers              which layers can be quantized, and why the others stay float
"""
