"""The story of a run and its stages; the room is not called as ``qbench.run`` is, the function that starts one."""
