"""Text from tokens as they come."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

# Stands for bytes that are no character yet.
INCOMPLETE = "\ufffd"


class TextStream:
    """Decodes the tokens of one sequence piece by piece. The pieces joined are the text of all
    tokens, up to the first of the strings ``stop``. Special tokens, and those of ``without``, are
    left out. Bytes that form no character may become other replacement characters than together."""

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), without: Iterable[int] = ()):
        self.tokenizer, self.stop = tokenizer, [one for one in stop if one]
        self.special = {*tokenizer.all_special_ids, *without}
        self.ids: list[int] = []
        # Tokens before `read` are decoded; those from `start` on are decoded again with the next,
        # as a space or a character may depend on them.
        self.start = self.read = 0
        self.held, self.done = "", False

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)

    def add(self, token: int) -> str:
        """Returns the text that a token completes."""
        if self.done or token in self.special:
            return ""
        self.ids.append(token)
        text = self.fresh()
        if text.endswith(INCOMPLETE):
            return ""
        self.start, self.read = self.read, len(self.ids)
        return self.release(text)

    def fresh(self) -> str:
        """Returns the text of the tokens that are not read yet."""
        return self.decode(self.ids[self.start :])[len(self.decode(self.ids[self.start : self.read])) :]

    def release(self, text: str) -> str:
        """Holds back what may be the beginning of a stop string."""
        text = self.held + text
        at = min((found for one in self.stop if (found := text.find(one)) >= 0), default=-1)
        if at >= 0:
            self.done, self.held = True, ""
            return text[:at]
        keep = max((size for one in self.stop for size in range(1, len(one)) if text.endswith(one[:size])), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Returns what was held back, after the last token."""
        if self.done:
            return ""
        text = self.release(self.fresh())
        self.done = True
        return text + self.held
