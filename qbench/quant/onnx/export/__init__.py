"""Graph + sites + record -> the models that are saved.

integer_weights     int8 weights, int32 biases, what is read quantized
narrow_weights      weights whose products never overflow 16 bits, for a CPU without VNNI, for ONNX Runtime on ARM
fake_quant          a float simulation in standard operators
deploy_onnxruntime  what ONNX Runtime executes
deploy_openvino     what OpenVINO executes
swish_apart         SiLU apart from OpenVINO's convolutions, for AMX
deploy_ascend       what Ascend's compiler takes
concat_ranges       what a Concat joins has one range
split_concats       a convolution of signed and unsigned values side by side, in two
upsampling          transposed convolutions as convolutions
prevent_fusion      sums that ONNX Runtime would fuse into slower kernels
keep_float          layers that are to be float stay float
executed_layers     what ONNX Runtime makes of a model, read from the runtime
parity              fake-quant model against deploy model
ascend_ops          an ascend model computed in numpy
"""
