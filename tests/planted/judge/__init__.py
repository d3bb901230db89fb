"""An independent judge of programs: slow and simple, written from the documentation and not from the checks.

It runs a plan or a list of `tl` calls in random orders, several calls in a row with other data in each, and says what
goes wrong: a result at a rank's end, a deadlock, accesses that nothing orders, messages or signals that are left over.
"""
