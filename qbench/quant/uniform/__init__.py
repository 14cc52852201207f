"""Uniform quantization of ONNX graphs: config -> calibration model -> record -> fake-quant and deploy models.

The flow and its file formats are those of Huawei's AMCT; everything but an ``ascend`` model runs in plain ONNX Runtime.

    graph skeleton tensor_proto   an ONNX model that is being rewritten; a graph without large weights
    prepare                       a graph from the wild -> an equal one that can be quantized, by the steps
      names opset half constants gemm pads fusion, each proven by equal
    layers                        which layers can be quantized, and why the others stay float
    config settings config_json rules defaults simplified algorithms    config.json <-> Config
    record protobuf_text          record.txt <-> Record
    sites                         graph + config -> what is quantized: weights and activations
    qparams                       a range -> scale and offset; q <-> x
    calibrators/                  values of a tensor, batch by batch -> its range
    calibration_model             prepared graph + config -> a model that also gives its activations
    calibrate session             calibration model + data -> record, by qbench or in the user's own loop, through
      feed pieces collect scales
    steps balance bias samples adaround weights                what calibration may change of the weights
    integers                      sites + record -> int8 weights, int32 biases, what is read quantized
    fake_quant                    graph + record -> a float simulation in standard operators
    deploy_*                      graph + record -> what a runtime executes
    outputs quant_json            all of these written beside each other
    ascend_ops parity             an ascend model computed in numpy; fake-quant model against deploy model
    accuracy accuracy_ledger sensitivity    the fewest layers back to float that keep a score
"""
