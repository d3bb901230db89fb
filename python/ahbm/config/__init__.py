"""The user's files: `ccl.yaml`, the topology, options of reading, and the files that `ahbm new` writes.

May import `base`.
"""
