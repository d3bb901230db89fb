"""The command `ahbm`, and `python -m ahbm`."""

import os
import sys


def main() -> None:
    """Runs the command line. Ctrl-C while it is loaded ends it as Ctrl-C later does."""
    try:
        from ahbm.cli import INTERRUPTED
        from ahbm.cli import main as command
        from ahbm.cli.interrupts import is_left_to_script
    except KeyboardInterrupt:
        print("AHBM-I101 interrupted: ahbm was being loaded", file=sys.stderr)
        sys.exit(130)
    try:
        command()
    except SystemExit as left:
        if left.code == INTERRUPTED and not is_left_to_script():
            # The interpreter would wait for threads that work in vain.
            os._exit(INTERRUPTED)
        raise


if __name__ == "__main__":
    main()
