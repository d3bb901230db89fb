"""`python -m ahbm.mscclpp --install`: writes plans for all-reduces of several nodes into `<cache>/default`.

Scripts under `python -m ahbm.torch` use them where they have registered none that match.
"""

from __future__ import annotations

import argparse

from ahbm.mscclpp.default_plans import install


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m ahbm.mscclpp", description="Writes default plans.")
    parser.add_argument("--install", action="store_true", required=True, help="write them into <cache>/default")
    parser.parse_args()
    for path in install():
        print(path)


if __name__ == "__main__":
    main()
