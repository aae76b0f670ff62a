"""The command ``buddy``, as ``buddy`` and as ``python -m buddy``."""

import sys

from ._native import command
from .libraries import load_compiler


def main() -> int:
    # Subcommands that run on a GPU; `profile -- PROGRAM` watches the program there.
    if set(sys.argv[1:2]) & {"gpu", "watch"} or ("profile" in sys.argv[1:2] and "--" in sys.argv):
        load_compiler()
    return command(["buddy", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
