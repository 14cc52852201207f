"""The fp32 weights of a built-in model, trained on a suite's data."""
