"""Kernels for tensors on CUDA devices, written in Triton, which comes with PyTorch where there is such a device."""
