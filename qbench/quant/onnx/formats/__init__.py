"""What is written beside the models, in AMCT's own form.

rules               how layers are to be quantized before there is a graph
defaults            graph + rules -> the configuration of every layer
config              the configuration of a graph, read and written
config_json         config.json <-> Config
amct_cfg            AMCT's simplified quant.cfg -> rules
algorithms          the options of the algorithms
protobuf_text       protobuf's text format
scale_record        record.txt <-> Record
calibration_file    calibration.onnx, with its configuration and its scales
quant_json          .quant.json
"""
