"""The command ``buddy``, as ``buddy`` and as ``python -m buddy``."""

import sys

from ._native import command
from .libraries import load_compiler


def main() -> int:
    if "gpu" in sys.argv[1:2]:
        load_compiler()
    return command(["buddy", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
