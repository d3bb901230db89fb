"""Charts and pages of runs: they show what reports and tables say, and run no table.

Needs the extra `report` (`pip install ahbm[report]`): altair, vl-convert, jinja2.

May import every package but `cli`.
"""
