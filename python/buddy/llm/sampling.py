"""Choice of the next token: the most likely, or drawn by temperature, top-k and top-p."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Options of the choice of tokens. A ``temperature`` of 0 takes the most likely. ``top_k`` keeps
    that many tokens, ``top_p`` the most likely ones until their probabilities reach it, in this
    order. Equal seeds give equal tokens; without one, PyTorch's generator draws."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature}; it is 0 (the most likely token) or a positive number")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k}; it is at least 1, or None for all tokens")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}; it is above 0 and at most 1, or None for all tokens")

    @property
    def form(self) -> tuple:
        """The options that a captured graph depends on; it reads the numbers from memory."""
        return (True,) if self.temperature == 0 else (False, self.top_k, self.top_p is not None)

    def uniforms(self, sequences: int, count: int) -> torch.Tensor:
        """Returns one number of [0, 1) for each token to come."""
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        return torch.rand(sequences, count, generator=generator)


def choose(logits: torch.Tensor, uniform: torch.Tensor, temperature: torch.Tensor, top_k: int | None, top_p: torch.Tensor | None) -> torch.Tensor:
    """Draws a token of each row (sequences, vocabulary) by a number of [0, 1): the first whose
    cumulative probability exceeds it. Waits for nothing on the host."""
    scores, ids = logits.float() / temperature, None
    if top_k is not None:
        scores, ids = scores.topk(min(top_k, scores.shape[-1]))
    elif top_p is not None:
        scores, ids = scores.sort(descending=True)
    likely = scores.softmax(-1, dtype=torch.float64)
    if top_p is not None:
        likely = torch.where(likely.cumsum(-1) - likely < top_p, likely, 0)
    sums = likely.cumsum(-1)
    at = torch.searchsorted(sums, uniform.double().unsqueeze(-1) * sums[:, -1:], right=True)
    return (at if ids is None else ids.gather(-1, at)).squeeze(-1)


class Sampler:
    """Chooses the tokens of an engine's sequences, from memory at fixed addresses."""

    def __init__(self, sequences: int, capacity: int, device: torch.device):
        self.uniforms = torch.zeros(sequences, capacity, device=device)
        self.turn = torch.zeros(1, dtype=torch.int64, device=device)
        self.temperature, self.top_p = torch.ones((), device=device), torch.ones((), dtype=torch.float64, device=device)
        self.sampling = Sampling()

    def start(self, sampling: Sampling, count: int) -> None:
        """Starts ``count`` tokens of each sequence."""
        self.sampling = sampling
        self.turn.zero_()
        if sampling.temperature:
            self.temperature.fill_(sampling.temperature)
            self.top_p.fill_(1 if sampling.top_p is None else sampling.top_p)
            self.uniforms[:, :count].copy_(sampling.uniforms(self.uniforms.shape[0], count))

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns the next tokens, and counts them."""
        sampling = self.sampling
        if not sampling.temperature:
            return logits.argmax(-1)
        uniform = self.uniforms.index_select(1, self.turn).squeeze(1)
        self.turn += 1
        return choose(logits, uniform, self.temperature, sampling.top_k, None if sampling.top_p is None else self.top_p)
