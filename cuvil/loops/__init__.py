"""The loop IR: kernels of loops, loads, stores and scalar expressions."""
