"""From a request to a program and its time: the emulator with its caches, the layouts of tensors over the machine, and
the bounds that no run beats.

May import `source` and below.
"""
