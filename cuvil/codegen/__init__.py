"""Code generation: kernels to LLVM IR text, LLVM IR to object files and to code in this process."""
