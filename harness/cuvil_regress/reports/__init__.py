"""Renderers of a run's report: one module a form."""
