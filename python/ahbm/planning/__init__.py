"""Which way of cutting a step of training over many ranks is the quickest that fits (`ahbm plan`).

May import `sweeps` and everything below it.
"""
