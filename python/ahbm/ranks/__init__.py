"""Ranks that meet: worlds of threads, sessions, process groups, mail, histories, and the calls of a rank. Knows no
tensor library but NumPy.

May import `table` and below.
"""
