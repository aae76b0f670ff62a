"""Executes a notebook as Jupyter does, in this Python, and prints the output of its cells.

    execute.py NOTEBOOK DONE
"""

import sys

import nbformat
from nbclient import NotebookClient


def shown(output):
    """Returns the visible text of an output; for pictures, a placeholder."""
    if output.output_type == "stream":
        return output.text.rstrip("\n")
    data = output.get("data", {})
    return f"[a page of {len(data['text/html'])} characters]" if "text/html" in data else data.get("text/plain", "")


def main(source, done):
    notebook = nbformat.read(source, as_version=4)
    NotebookClient(notebook, timeout=600, startup_timeout=300, kernel_name="python3").execute()
    nbformat.write(notebook, done)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            print(f"In: {cell.source}", *map(shown, cell.outputs), sep="\n", end="\n\n")


main(*sys.argv[1:])
