"""``load``: a Transformers model and its tokenizer as a ``LanguageModel``, which writes text.

    model = buddy.llm.load("Llama-3.1-8B")
    for piece in model.stream("The sea", max_new_tokens=100, temperature=0.7):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Sequence

import torch

from ..torch.ops import on_device
from . import engines
from .engines import Engine, KernelEngine, TorchEngine
from .sampling import Sampling
from .text import TextStream
from .weights import Weights, check_config, read

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A prompt: text, tokens, or the messages of a chat.
Prompt = str | Sequence[int] | Sequence[dict]
# Capacities are multiples of this, so that a longer prompt seldom needs another engine.
STEP = 512


def load(model: str | os.PathLike | PreTrainedModel, tokenizer: Any = None, *, device: torch.device | str | None = None,
         packed: bool | None = None, dtype: torch.dtype | str = "auto") -> LanguageModel:
    """Loads a model of the Llama, Qwen or Gemma family, with its tokenizer.

    ``model`` is a folder, plain or written by ``buddy pack``, a name on the Hub, or a loaded model,
    whose merged matrices are then held twice. ``device`` is the GPU if there is one. ``packed``
    holds bf16 matrices packed: by default on a GPU, where kernels read them so.

    Raises ``ValueError`` for models that the loop does not run, and for folders that are damaged or
    lack weights.
    """
    from transformers import PreTrainedModel

    is_folder = not isinstance(model, PreTrainedModel)
    if not is_folder and device is not None and torch.empty(0, device=device).device != model.device:
        raise ValueError(f"the model is on {model.device}, not on {device}: move it, or pass its folder")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")) if is_folder else model.device
    packed = where.type == "cuda" if packed is None else packed
    problem = None
    if tokenizer is None:
        try:
            tokenizer = load_tokenizer(model if is_folder else model.config._name_or_path)
        except Exception as error:  # of many kinds; tokens can be written without one
            problem = error
    found = load_folder(model, where, packed, dtype) if is_folder else model
    weights = read(found, packed, kernels=has_kernels(where), release=is_folder)
    return LanguageModel(weights, tokenizer, ends_of(found), problem)


def has_kernels(device: torch.device) -> bool:
    """Returns whether a device may run ``Decoder``."""
    return device.type == "cuda"


def load_tokenizer(source: str | os.PathLike) -> Any:
    from transformers import AutoTokenizer

    # Some versions of Transformers make an empty tokenizer of nothing.
    if os.path.isdir(source) and not any(name.startswith(("tokenizer", "vocab")) for name in os.listdir(source)):
        raise FileNotFoundError(f"{os.fspath(source)} holds no tokenizer")
    return AutoTokenizer.from_pretrained(source)


def load_folder(folder: str | os.PathLike, device: torch.device, packed: bool, dtype: torch.dtype | str) -> PreTrainedModel:
    """Loads a folder by Transformers; packed if it is, or ``packed``."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from ..transformers import BuddyConfig

    config = AutoConfig.from_pretrained(folder)
    check_config(config.get_text_config(decoder=True))
    how: dict[str, Any] = {} if device.type == "cpu" else {"device_map": {"": device}}
    if packed and not hasattr(config, "quantization_config"):
        how["quantization_config"] = BuddyConfig()
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, **how)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"{folder} lacks {len(missing)} weights of its model: {', '.join(missing[:4])}{' and others' if len(missing) > 4 else ''}")
    return model.eval()


def ends_of(model: PreTrainedModel) -> frozenset[int]:
    """Returns the tokens that end a text."""
    ends = model.generation_config.eos_token_id if model.generation_config is not None else None
    return frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)


class LanguageModel:
    """Writes text by our own decode loop. Made by ``load``."""

    def __init__(self, weights: Weights, tokenizer: Any = None, stop_tokens: Iterable[int] = (), problem: Exception | None = None):
        self.weights, self.stop_tokens = weights, frozenset(stop_tokens)
        self._tokenizer, self._problem = tokenizer, problem
        self._engine: Engine | None = None
        self._writing = False

    @property
    def tokenizer(self) -> Any:
        """The tokenizer. Raises ``ValueError`` if there is none."""
        if self._tokenizer is None:
            raise ValueError("this model has no tokenizer: pass load(..., tokenizer=), or tokens to `tokens`") from self._problem
        return self._tokenizer

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return self.weights.nbytes

    def encode(self, prompt: Prompt) -> list[int]:
        """Returns the tokens of a prompt; messages go through the tokenizer's chat template."""
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        if prompt and isinstance(prompt[0], dict):
            return list(self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False))
        return [int(one) for one in prompt]

    def tokens(self, prompts: Sequence[Prompt], *, max_new_tokens: int = 256, temperature: float = 0.0, top_k: int | None = None,
               top_p: float | None = None, seed: int | None = None, stop_tokens: Iterable[int] | None = None) -> Iterator[list[int | None]]:
        """Yields the next token of each prompt, step by step; None after a stop token, which is the
        last. ``stop_tokens`` are those of the model unless given. Arguments are checked at once."""
        sampling = Sampling(temperature, top_k, top_p, seed)
        if is_single(prompts):
            raise ValueError("tokens takes a list of prompts: pass [prompt]")
        ids = [self.encode(one) for one in prompts]
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens={max_new_tokens}; it is at least 1")
        if not ids or not all(ids):
            raise ValueError("a prompt holds at least one token")
        most = self.weights.shape.vocabulary - 1
        if wrong := [one for row in ids for one in row if not 0 <= one <= most]:
            raise ValueError(f"token {wrong[0]} in a prompt for tokens of 0 to {most}")
        return self._steps(ids, sampling, max_new_tokens, self.stop_tokens if stop_tokens is None else frozenset(stop_tokens))

    def _steps(self, ids: list[list[int]], sampling: Sampling, count: int, ends: frozenset[int]) -> Iterator[list[int | None]]:
        if self._writing:
            raise RuntimeError("this model is writing: finish or close the other stream first")
        self._writing = True
        try:
            live = [True] * len(ids)
            for row in self.engine(len(ids), max(map(len, ids)) + count).write(ids, sampling, count):
                yield [token if alive else None for token, alive in zip(row, live)]
                live = [alive and token not in ends for token, alive in zip(row, live)]
                if not any(live):
                    return
        finally:
            self._writing = False

    def engine(self, sequences: int, capacity: int) -> Engine:
        """Returns the engine for this number of sequences, which is kept."""
        if self._engine is None or self._engine.sequences != sequences or self._engine.capacity < capacity:
            self._engine = None  # releases its memory first
            capacity = -(-capacity // STEP) * STEP
            kind = TorchEngine if engines.refusal(self.weights, capacity) else KernelEngine
            with on_device(self.weights.norm.weight):
                self._engine = kind(self.weights, sequences, capacity)
        return self._engine

    def _text(self, stop: str | Sequence[str], stop_tokens: Iterable[int] | None = None, **_: Any) -> TextStream:
        without = self.stop_tokens if stop_tokens is None else stop_tokens
        return TextStream(self.tokenizer, [stop] if isinstance(stop, str) else stop, without)

    def stream(self, prompt: Prompt, *, stop: str | Sequence[str] = (), **options: Any) -> Iterator[str]:
        """Yields the text after a prompt, piece by piece. It ends before a stop token and before the
        first of the strings ``stop``. ``options`` are those of ``tokens``."""
        text, steps = self._text(stop, **options), self.tokens([prompt], **options)

        def pieces() -> Iterator[str]:
            for (token,) in steps:
                if piece := text.add(token):
                    yield piece
                if text.done:
                    steps.close()
                    return
            if piece := text.finish():
                yield piece

        return pieces()

    def generate(self, prompts: Prompt | Sequence[Prompt], *, stop: str | Sequence[str] = (), **options: Any) -> str | list[str]:
        """Returns the text after each prompt of a list, or after a single one. Arguments are those
        of ``stream``."""
        if is_single(prompts):
            return "".join(self.stream(prompts, stop=stop, **options))
        streams: list[TextStream] = [self._text(stop, **options) for _ in prompts]
        pieces: list[list[str]] = [[] for _ in prompts]
        steps = self.tokens(prompts, **options)
        for row in steps:
            for text, found, token in zip(streams, pieces, row):
                if token is not None:
                    found.append(text.add(token))
            if all(text.done for text in streams):
                steps.close()
                break
        return ["".join(found) + text.finish() for text, found in zip(streams, pieces)]


def is_single(prompts: Any) -> bool:
    """Returns whether this is one prompt, not a list of them."""
    return isinstance(prompts, str) or bool(prompts) and isinstance(prompts[0], (int, dict))
