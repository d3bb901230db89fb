"""Right or wrong, and the reasons: NumPy references, diffs of contributions, checks of captured programs, random
orders, orders of addition.

May import `core` and below.
"""
