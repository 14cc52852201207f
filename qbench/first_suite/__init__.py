"""A model and perhaps data -> a first suite that runs: short, with a comment at whatever was assumed."""
