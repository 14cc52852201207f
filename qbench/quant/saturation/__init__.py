"""What int8 kernels answer that add neighbouring products of bytes in 16 bits, bit for bit, computed on any CPU."""
