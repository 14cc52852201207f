"""Child processes: how they start, answer, and die; how many work at one time."""
