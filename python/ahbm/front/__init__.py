"""The way from a user's tensors to a rank's calls: device tensors, and the marshalling behind `ahbm.distributed`.

May import `ranks` and below.
"""
