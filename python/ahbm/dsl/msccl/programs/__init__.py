"""Whole algorithms as functions, to be called inside a program."""
