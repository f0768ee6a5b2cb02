"""``python -m experiments.zoo``."""

import sys

from experiments.zoo.cli import main

if __name__ == "__main__":
    sys.exit(main())
