"""Why an int8 case is slower than it could be: one plug-in for each cause, with the change that takes it away."""
