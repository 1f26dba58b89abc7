"""Passes: one function a file, graph to graph, named like its file."""
