"""Tables of runs: the cases of a sweep, the one loop and the processes that run them, the store that keeps their rows,
their columns, and the ways to print them: nccl-tests' table, the ladder of the quickest.

May import `runs` and below.
"""
