"""Kernels for tensors on CUDA devices, written in Triton."""
