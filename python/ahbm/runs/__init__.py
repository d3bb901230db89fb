"""Measuring and reporting one run: comparisons, explanations, verdicts on files, probes, and the pytest plugin.

May import `check` and below.
"""
