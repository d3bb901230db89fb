"""Charts and pages of runs: they show what reports say and compute nothing of their own.

Needs the extra `report` (`pip install ahbm[report]`): altair, vl-convert, jinja2.

May import every package but `cli`.
"""
