"""The vocabulary of all other packages: requests, the collectives, element types, arrays, placement policies, YAML with
line numbers, and the files that come with the package. It knows no other package.

May import `ahbm.errors` and the native core.
"""
