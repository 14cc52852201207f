"""One file and no suite: whether it loads, what of it runs in int8, how fast, and what is wrong in it."""
