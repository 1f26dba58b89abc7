"""Schedules: choices that change how fast a kernel runs, and never what it computes."""
