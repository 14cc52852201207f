"""Uniform quantization of ONNX graphs: config -> calibration model -> record -> fake-quant and deploy models.

The flow and its file formats are those of Huawei's AMCT; everything but an ``ascend`` model runs in plain ONNX Runtime.

    graph/          a graph from the wild -> an equal one that can be quantized, and which of its layers can be
    files/          config.json <-> Config, record.txt <-> Record, .quant.json
    sites           graph + config -> what is quantized: weights and activations
    qparams         a range -> scale and offset; q <-> x
    calibrators/    values of a tensor, batch by batch -> its range
    calibration/    prepared graph + config -> calibration model; calibration model + data -> record
    weights/        what calibration may change of the weights: their scales, AdaRound, balance, bias correction
    outputs/        graph + sites + record -> fake-quant model, what a runtime executes, and whether they agree
    whole           files that are written whole or not at all
    accuracy accuracy_ledger sensitivity    the fewest layers back to float that keep a score
"""
