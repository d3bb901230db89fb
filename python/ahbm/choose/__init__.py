"""Choosing offline: the catalogue of algorithms, the time of each of them everywhere, and what a choice loses by it.

May import `sweeps`, `selectors` and everything below them.
"""
