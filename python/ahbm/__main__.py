"""`python -m ahbm`: the command `ahbm`."""

from ahbm.cli import main

main()
