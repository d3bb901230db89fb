"""Which algorithm performs a call, with which knobs, and why: asked by everybody who runs one.

A `Policy` is a list of named choosers that are asked in order. May import `selectors` and below.
"""
