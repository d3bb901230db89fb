"""Recorded training jobs, replayed on the machine.

May import `ranks` and below.
"""
