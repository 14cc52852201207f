"""Uniform quantization of ONNX graphs: config -> calibration model -> record -> fake-quant and deploy models.

The flow and its file formats are those of Huawei's AMCT; everything but an ``ascend`` model runs in plain ONNX Runtime.

    graph               any ONNX graph -> an equal one that can be quantized, and which of its layers can be
    formats             config.json <-> Config, record.txt <-> Record, .quant.json
    settings            what is quantized and how, as values
    needed_inputs       graph + layers -> which inputs are quantized for them
    sites               graph + config -> what is quantized: weights and activations
    calibration         prepared graph + config -> calibration model; calibration model + data -> record
    weights             what calibration may change of the weights: their scales, AdaRound, balance, bias correction
    export              graph + sites + record -> fake-quant model, what a runtime executes, and whether they agree
    static              the whole flow for a recipe of a suite
    qat                 a network that torch trained with fake quantization -> the same files
"""
