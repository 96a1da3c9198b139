"""The memory of process and GPU, and kernels that give the same bits."""
