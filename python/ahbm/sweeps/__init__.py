"""Sweeps: the space of what is measured, the table of its rows, and what they answer; `table` runs and keeps its cases.

The package is not called `sweep`, because `ahbm.sweep` is a function: a subpackage of that name would hide it.

May import `job`, `front`, `torch` and everything below them.
"""
