"""Measuring and reporting: one run, sweeps, comparisons, ladders, explanations, verdicts on files, probes, and the
pytest plugin.

May import `check` and below.
"""
