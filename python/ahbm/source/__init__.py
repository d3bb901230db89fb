"""The things that can run: algorithm modules, plans of other tools, synthesized schedules.

Each turns a request into a program.

May import `config` and below.
"""
