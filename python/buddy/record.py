"""Records of the command line, with their tables and pages."""

from __future__ import annotations

import html
import json
import os
from typing import Any


class Record:
    """A versioned record. ``print`` shows its tables, a notebook its page."""

    def __init__(self, text: str):
        self._json = text
        self._record: dict[str, Any] = json.loads(text)

    @property
    def data(self) -> dict[str, Any]:
        """The results, without the record's metadata."""
        return self._record["data"]

    def to_dict(self) -> dict[str, Any]:
        """Returns the whole record, as the command writes it with ``--json``."""
        return json.loads(self._json)

    def to_json(self) -> str:
        """Returns the whole record as JSON."""
        return self._json

    def to_html(self) -> str:
        """Returns a page with tables and charts, one file that needs no network."""
        raise NotImplementedError

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_html())

    def _repr_html_(self) -> str:
        page = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:600px;border:0"></iframe>'
