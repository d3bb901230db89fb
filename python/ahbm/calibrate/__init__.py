"""Calibration: machines fitted to measured tables of real ones, with the error at sizes that were held back.

May import `runs` and everything below it.
"""
