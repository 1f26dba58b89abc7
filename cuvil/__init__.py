"""Cuvil: ONNX and PyTorch models to native code with the same bits on every target."""
