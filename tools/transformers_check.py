#!/usr/bin/env python3
"""Checks Transformers' models with packed weights, keys and values on a GPU at real shapes: tokens,
bits, memory, speed.

    pip install target/wheels/buddy_memory-*.whl transformers
    tools/transformers_check.py                     # or with names of models, and --json RECORD

Weights are random. Each model is written to a folder, loaded plain and packed, and generates tokens
in every way. With --speed it measures only tokens per second, eager, compiled (static cache) and
with a BuddyCache: a model and its packed copy are both on the GPU and run in turn, --rounds times.
The record holds every rate and the medians, and is written after every result. Nothing starts after
--limit seconds; what is left out is named as `late`. With --tiny, or without a GPU, shapes are
small. tools/llm_check.py measures `buddy.llm` beside them.
"""

import argparse
import copy
import gc
import json
import pathlib
import statistics
import sys
import tempfile
import time
import traceback

import torch
import transformers

import buddy
from buddy.torch import compress_
from buddy.transformers import BuddyCache, BuddyConfig

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LLAMA = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
             max_position_embeddings=8192)
MODELS = {
    "llama-8b": lambda layers: transformers.LlamaConfig(**LLAMA, num_hidden_layers=layers or 32, rope_theta=500000.0, tie_word_embeddings=False),
    "qwen3-0.6b": lambda layers: transformers.Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        num_hidden_layers=layers or 28, max_position_embeddings=8192, tie_word_embeddings=True),
    "gemma3-1b": lambda layers: transformers.Gemma3TextConfig(
        vocab_size=262144, hidden_size=1152, intermediate_size=6912, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
        num_hidden_layers=layers or 26, sliding_window=512, max_position_embeddings=8192),
}
TINY = dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_hidden_layers=2)


class Row:
    """The results of a model: each is printed, and written to the record, as it comes."""

    def __init__(self, record: dict, path: str | None, ends: float, **known):
        self.record, self.path, self.ends, self.row = record, path, ends, known
        record["models"].append(self.row)

    def say(self, **more) -> None:
        if not more:
            return
        self.row.update(more)
        print(json.dumps({"model": self.row["model"]} | more), flush=True)
        if self.path:
            pathlib.Path(self.path).write_text(json.dumps(self.record, indent=1) + "\n")

    def late(self, stage: str = "") -> bool:
        """Returns whether nothing more may start; the record names the stages left out."""
        late = time.perf_counter() > self.ends
        if late and stage not in ["", *self.row.get("late", [])]:
            self.say(late=[*self.row.get("late", []), stage])
        return late


def write(config, folder: pathlib.Path) -> None:
    """Writes a folder with random weights, made on the fastest device."""
    torch.manual_seed(5)
    torch.set_default_device(DEVICE)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    torch.set_default_device("cpu")
    model.save_pretrained(folder, max_shard_size="4GB")


def load(folder: pathlib.Path, attention: str = "sdpa", **kwargs):
    """Loads the model of a folder to the device; returns it with the time and the peak of device
    memory that loading takes."""
    before = used()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation=attention, device_map=DEVICE, **kwargs)
    model.eval()
    wait()
    peak = torch.cuda.max_memory_allocated() - before if DEVICE == "cuda" else 0
    return model, time.perf_counter() - started, peak


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def used() -> int:
    """Returns the bytes of device memory used by tensors."""
    gc.collect()
    return torch.cuda.memory_allocated() if DEVICE == "cuda" else 0


PROMPT = 96


def prompt(model, tokens: int = PROMPT) -> dict:
    ids = (torch.arange(tokens, device=DEVICE) * 37 % 509).unsqueeze(0)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def written(model, count: int, **kwargs) -> torch.Tensor:
    return model.generate(**prompt(model), max_new_tokens=count, min_new_tokens=count, do_sample=False, **kwargs)


class Clock(transformers.StoppingCriteria):
    """Never stops generation; times it from the first tokens, when graphs are captured, to the
    last."""

    def __init__(self, count: int):
        self.first, self.count, self.seen = count // 4, count, 0

    def __call__(self, input_ids, scores, **kwargs):
        self.seen += 1
        if self.seen in (self.first, self.count):
            wait()
            self.started, self.seconds = (time.perf_counter(), 0) if self.seen == self.first else (self.started, time.perf_counter() - self.started)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def rate(model, count: int, make=dict, warm: bool = True) -> float:
    """Returns tokens per second of a run, after another that warms up; `make` gives the arguments of
    each run."""
    for _ in range(2 if warm else 1):
        clock = Clock(count)
        written(model, count, stopping_criteria=transformers.StoppingCriteriaList([clock]), **make())
    return (count - clock.first) / clock.seconds


def rates(models: dict, count: int, ways: dict, rounds: int, late=lambda: False) -> dict:
    """Measures models in turn, so that a slow moment of the host meets all of them; the first round
    of each way warms up. Returns all rates and their medians by name, and stops when it is late."""
    found = {}
    for way, make in ways.items():
        for turn in range(rounds + 1):
            for kind, model in models.items():
                if late():
                    continue
                value = rate(model, count, make, warm=False)
                if turn:
                    found.setdefault(f"{kind}{way}_tokens_s", []).append(value)
    return {name: {"median": statistics.median(all_rates), "all": all_rates} for name, all_rates in found.items()}


def same_bits(model, plain) -> int:
    """Compares the tensors of ``state_dict``; returns their number."""
    ours = model.state_dict()
    for name, one in plain.state_dict().items():
        assert torch.equal(ours[name].view(torch.uint8), one.view(torch.uint8)), name
    return len(ours)


# Transformers compiles by itself with a static cache.
STATIC = lambda: {"cache_implementation": "static"}


def speeds(row: Row, config, count: int, compiled: bool, rounds: int) -> None:
    """Measures tokens per second of one model and its packed copy, in turn."""
    if row.late("all"):
        return
    row.say(tokens=count, prompt=PROMPT, rounds=rounds)
    before = used()
    with torch.device(DEVICE):
        plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    middle = used()
    packed = compress_(copy.deepcopy(plain))
    row.say(plain_bytes=middle - before, packed_bytes=used() - middle)
    models = {"plain": plain, "packed": packed}
    for model in models.values():
        model.set_attn_implementation("sdpa")
    row.say(**rates(models, count, {"": dict}, rounds, lambda: row.late("eager")))
    if compiled:
        row.say(**rates(models, count, {"_compiled": STATIC}, rounds, lambda: row.late("compiled")))
    packed.set_attn_implementation("buddy")
    ways = {"_with_buddy_cache": lambda: {"past_key_values": BuddyCache(packed.config, capacity=1024)}}
    row.say(**rates({"packed": packed}, count, ways, rounds, lambda: row.late("with_buddy_cache")))


def check(row: Row, config, count: int, compiled: bool, rounds: int) -> None:
    if row.late("all"):
        return
    say = row.say
    with tempfile.TemporaryDirectory() as folder:
        plain_folder, packed_folder = pathlib.Path(folder, "plain"), pathlib.Path(folder, "packed")
        write(config, plain_folder)
        before = used()
        started = time.perf_counter()
        packing = buddy.pack_model(plain_folder, packed_folder)
        say(packing_gb_s=packing.plain_bytes / 1e9 / (time.perf_counter() - started), packed_share=packing.share)
        plain, seconds, peak = load(plain_folder)
        say(plain_bytes=used() - before, plain_load_s=seconds, plain_load_peak_bytes=peak)
        middle = used()
        packed, seconds, peak = load(packed_folder)
        say(packed_bytes=used() - middle, packed_load_s=seconds, packed_load_peak_bytes=peak)
        logits = [model(**prompt(model)).logits.float() for model in [plain, packed]]
        say(logits_apart=(logits[0] - logits[1]).abs().max().item(), logits_spread=logits[0].std().item())
        say(**rates({"plain": plain, "packed": packed}, count, {"": dict}, rounds, lambda: row.late("eager")))
        if compiled:
            say(**rates({"plain": plain, "packed": packed}, count, {"_compiled": STATIC}, rounds, lambda: row.late("compiled")))
        del packed
        if not row.late("in_place"):
            in_place, _, _ = load(packed_folder, attention="buddy")
            say(in_place_tokens_s=rate(in_place, count, lambda: {"past_key_values": BuddyCache(in_place.config, capacity=1024)}))
            del in_place
        if row.late("exact"):
            return
        expected = written(plain, count)
        exact, seconds, peak = load(plain_folder, quantization_config=BuddyConfig(exact=True))
        say(exact_same_tokens=bool(torch.equal(written(exact, count), expected)), load_and_pack_s=seconds, load_and_pack_peak_bytes=peak)
        say(state_dict_tensors_equal=same_bits(exact, plain))
        if "sliding_attention" not in (getattr(config, "layer_types", None) or []):
            cache = BuddyCache(exact.config, capacity=1024)
            say(exact_same_tokens_with_cache=bool(torch.equal(written(exact, count, past_key_values=cache), expected)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--layers", type=int, help="number of layers [default: all]")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("--compiled", action="store_true", help="also compiled, with a static cache")
    parser.add_argument("--speed", action="store_true", help="measure only tokens per second, without folders")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start nothing after this many seconds, of all models together")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each way, plain and packed in turn")
    parser.add_argument("--tiny", action="store_true", help="small shapes")
    parser.add_argument("--json", help="file for the record")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    record = {"gpu": torch.cuda.get_device_name() if DEVICE == "cuda" else None, "torch": torch.__version__,
              "transformers": transformers.__version__, "models": []}
    failed, ends = 0, time.perf_counter() + asked.limit
    for name in asked.models:
        config = MODELS[name](asked.layers)
        if asked.tiny:
            config = type(config)(**TINY, tie_word_embeddings=config.tie_word_embeddings)
        row = Row(record, asked.json, ends, model=name, layers=config.num_hidden_layers)
        try:
            (speeds if asked.speed else check)(row, config, asked.tokens, asked.compiled, asked.rounds)
        except Exception:
            traceback.print_exc()
            row.say(error=traceback.format_exc()[-1000:])
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
