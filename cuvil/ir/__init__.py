"""The graph IR: typed values, nodes, graphs, their text form and the verifier."""
