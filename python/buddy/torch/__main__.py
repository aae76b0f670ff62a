"""``python -m buddy.torch SCRIPT`` runs a PyTorch script and reports its allocator blocks to
``buddy watch`` (``watching.py``)."""

import os
import runpy
import sys

from .watching import watch_blocks


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m buddy.torch SCRIPT [ARGUMENT ...]")
    del sys.argv[0]
    watch_blocks()
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
