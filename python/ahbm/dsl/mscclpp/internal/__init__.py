"""Enumerations and the current program."""
