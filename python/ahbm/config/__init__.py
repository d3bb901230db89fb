"""The user's files: `ccl.yaml`, the topology, options of reading, and the files that `ahbm init` and `ahbm new` write.

May import `base`.
"""
