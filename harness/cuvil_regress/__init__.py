"""Cuvil's regression and ABI harness.

It never imports the compiler: the two meet only at files and at the command line, so that it can judge
any release of the compiler and any library that no one here wrote.
"""
