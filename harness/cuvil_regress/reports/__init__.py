"""Renderers: one module a kind of report."""
