"""Operators: one file a family, with types, NumPy meaning, loops and foreign names side by side.

A module here offers `OPERATORS`, its `OpDef`s, and `ONNX`, which maps ONNX operator types to the functions
that import them. Nothing else registers anything.
"""
