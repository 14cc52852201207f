"""Graph + sites + record -> the models that are saved.

integers                int8 weights, int32 biases, what is read quantized
narrow                  weights whose products never overflow 16 bits, for a CPU without VNNI
fake_quant              a float simulation in standard operators
deploy_onnxruntime deploy_openvino deploy_ascend        what a runtime executes
unfused                 sums that ONNX Runtime would fuse into slower kernels
executed                what ONNX Runtime makes of it, read from the runtime
ascend_ops parity       an ascend model computed in numpy; fake-quant model against deploy model
outputs                 all of these written beside each other
"""
