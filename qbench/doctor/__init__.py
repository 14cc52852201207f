"""What this machine and installation can do for int8, and what to do about it."""
