"""What is written beside the models, in AMCT's own form.

config settings rules defaults              what is quantized and how
config_json simplified algorithms           config.json and a simplified quant.cfg <-> Config
record protobuf_text                        record.txt <-> Record
quant_json                                  .quant.json
"""
