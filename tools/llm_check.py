#!/usr/bin/env python3
"""Measures `buddy.llm` beside Transformers' `generate` on a GPU, and checks its logits, within a time limit.

    tools/llm_check.py --json RECORD                # Llama 8B's shapes, all 32 layers, batch 1, at most 145 seconds
    tools/llm_check.py --limit 400 --rounds 7       # more time for the compiler

Weights are random and made on the GPU; nothing is downloaded. Each way is a process of its own with
its own copy of the model: `generate` eager and compiled (static cache), plain and packed, and the
loop, greedy and sampling. All prepare at once; then they are measured in turn, one at a time,
--rounds times. The record is written after every message, so an end at any moment loses nothing. A
way that is not ready in time is left out and named. `families` compares small models of every
family with fp32, in CUDA graphs. With --tiny, or without a GPU, shapes are small.
"""

import argparse
import json
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

WAYS = ["plain", "plain_compiled", "packed", "packed_compiled", "loop"]
# Seconds that measuring may take, kept free of preparation.
RESERVE = 35
# Tokens of the prompt before those that `compare` forces.
FIRST = 32


def prepare(asked):
    """Returns the configuration of the model; imports of workers take long."""
    import torch
    import transformers

    import transformers_check as base

    transformers.logging.set_verbosity_error()
    torch.manual_seed(5)
    config = base.MODELS["llama-8b"](asked.layers)
    if asked.tiny or base.DEVICE == "cpu":
        config = type(config)(**base.TINY, tie_word_embeddings=False)
    return torch, transformers, base, config


class Way:
    """A model and one way to generate with it."""

    def __init__(self, way, asked):
        self.torch, transformers, self.base, config = prepare(asked)
        self.way, self.asked, base, torch = way, asked, self.base, self.torch
        with torch.device(base.DEVICE):
            self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
        if way.startswith("packed"):
            from buddy.torch import compress_

            compress_(self.model)
        if way == "loop":
            from buddy.llm.model import LanguageModel, has_kernels
            from buddy.llm.weights import read

            self.model = LanguageModel(read(self.model, True, has_kernels(torch.device(base.DEVICE)), release=True))
        if base.DEVICE == "cuda":
            torch.cuda.empty_cache()
        gpu = torch.cuda.get_device_name() if base.DEVICE == "cuda" else None
        self.versions = {"gpu": gpu, "torch": torch.__version__, "transformers": transformers.__version__}
        self.prompt = ((torch.arange(base.PROMPT) * 37) % 509).tolist()

    def rate(self, **options):
        """Returns tokens per second, from a quarter of the tokens on, when graphs are captured."""
        if self.way != "loop":
            return self.base.rate(self.model, self.asked.tokens, self.base.STATIC if self.way.endswith("compiled") else dict, warm=False)
        first, count = self.asked.tokens // 4, self.asked.tokens
        for number, _ in enumerate(self.model.tokens([self.prompt], max_new_tokens=count, **options), 1):
            if number == first:
                started = time.perf_counter()
        return (count - first) / (time.perf_counter() - started)

    def ready(self):
        """Warms up twice, and returns the second rate with the tokens."""
        self.rate()
        found = {"versions": self.versions, "warm_tokens_s": self.rate(), "bytes": self.base.used(), "tokens": self.tokens()}
        if self.way == "loop":
            self.rate(temperature=0.7, top_p=0.9, seed=1)
            found |= {"engine": type(self.model.engine(1, 1)).__name__, "sampled_same_seed_same_tokens": self.tokens(temperature=1.0, seed=4) == self.tokens(temperature=1.0, seed=4)}
        return found

    def tokens(self, **options):
        if self.way == "loop":
            return [row[0] for row in self.model.tokens([self.prompt], max_new_tokens=16, **options)]
        return self.base.written(self.model, 16)[0, self.base.PROMPT :].tolist()

    def run(self):
        found = {"tokens_s": self.rate()}
        return found | {"sampled_tokens_s": self.rate(temperature=0.7, top_p=0.9, seed=1)} if self.way == "loop" else found

    def compare(self, folder):
        """Writes the logits of the prompt's later tokens; the loop compares its own, by decode steps."""
        torch, path = self.torch, pathlib.Path(folder, "logits.pt")
        if self.way == "plain":
            with torch.no_grad():
                torch.save(self.model(**self.base.prompt(self.model)).logits[0, FIRST - 1 :].cpu(), path)
            return {"logits": "written"}
        wanted, found = torch.load(path).float(), forced_logits(torch, self.model.engine(1, 1), self.prompt, FIRST)
        return {"logits_apart": (found - wanted).abs().max().item(), "logits_apart_rms": (found - wanted).square().mean().sqrt().item(),
                "logits_spread": wanted.std().item(), "same_best_token": (found.argmax(-1) == wanted.argmax(-1)).float().mean().item()}


def forced_logits(torch, engine, ids, first):
    """Returns the logits behind each of the tokens from `first` - 1 on: a prompt, then decode steps."""
    from buddy.llm import Sampling

    engine.start([ids[:first]], Sampling(), len(ids) - first + 1)
    found = [engine.logits[0].float().cpu()]
    for one in ids[first:]:
        engine.replace(torch.tensor([one], device=engine.chosen.device))
        engine.advance()
        found.append(engine.logits[0].float().cpu())
    return torch.stack(found)


def families(asked):
    """Compares small models of every family, packed, with fp32: the loop's errors beside those of
    Transformers in bf16."""
    torch, T, base, _ = prepare(asked)
    from buddy.llm.model import LanguageModel, has_kernels
    from buddy.llm.weights import read

    small = dict(vocab_size=1024, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=512, initializer_range=0.1, tie_word_embeddings=False)
    heads, slides = small | dict(head_dim=64), dict(sliding_window=24, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    configs = {"llama": T.LlamaConfig(**heads), "mistral": T.MistralConfig(**heads, sliding_window=4096), "mistral-window": T.MistralConfig(**heads, sliding_window=24),
               "qwen2": T.Qwen2Config(**small), "qwen3": T.Qwen3Config(**heads), "gemma": T.GemmaConfig(**heads),
               "gemma2": T.Gemma2Config(**heads, **slides, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
               "gemma3": T.Gemma3TextConfig(**small, **slides, head_dim=256)}
    ids, found = ((torch.arange(80) * 37) % 1021).tolist(), {}
    for name, config in configs.items():
        torch.manual_seed(5)
        with torch.device(base.DEVICE):
            model = T.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
            for one in model.parameters():
                if one.dim() == 1:
                    torch.nn.init.normal_(one, 1.0 if one.mean() > 0.5 else 0.0, 0.3)
                one.data = one.data.bfloat16().to(one.dtype)  # bf16 below loses no weight
            inputs = torch.tensor([ids], device=base.DEVICE)
            with torch.no_grad():
                exact = model(inputs).logits[0, 39:].float().cpu()
                half = T.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.bfloat16).eval()
                half.load_state_dict(model.state_dict())
                theirs = half(inputs).logits[0, 39:].float().cpu()
        ours = LanguageModel(read(half, True, has_kernels(torch.device(base.DEVICE))))
        engine = ours.engine(1, 1)
        error = lambda logits: (logits - exact).square().mean().sqrt().item()
        row = {"engine": type(engine).__name__, "error": error(forced_logits(torch, engine, ids, 40)), "error_of_transformers": error(theirs)}
        pair = [list(zip(*ours.tokens([ids[:40], ids[5:12]], max_new_tokens=20, **how))) for how in ({}, dict(temperature=1.0, seed=3))]
        alone = [[row[0] for row in ours.tokens([ids[:40]], max_new_tokens=20, **how)] for how in ({}, dict(temperature=1.0, seed=3))]
        same = [sum(a == b for a, b in zip(one[0], two)) for one, two in zip(pair, alone)]
        found[name] = row | {"fine": row["error"] < 1.5 * row["error_of_transformers"] + 1e-4, "tokens_as_alone_of_20": same}
    return found


def worker(asked):
    """Prepares a way, and answers commands: a line of JSON each."""
    def say(**values):
        print(json.dumps(values), flush=True)

    try:
        if asked.worker == "families":
            prepare(asked)
            say(ready={})
        else:
            way = Way(asked.worker, asked)
            say(ready=way.ready())
        for line in sys.stdin:
            command = line.strip()
            if command == "run":
                say(run=way.run())
            elif command == "families":
                say(families=families(asked))
            else:
                say(compare=way.compare(command))
    except Exception:
        say(error=traceback.format_exc())
    return 0


class Worker:
    """A way's process, and its messages."""

    def __init__(self, way, arguments, log):
        command = [sys.executable, __file__, *arguments, "--worker", way]
        self.way, self.messages = way, queue.Queue()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.messages.put(json.loads(line))
        self.messages.put({"error": "its process ended"})

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self, seconds):
        """Returns the next message, or an error after some seconds."""
        try:
            return self.messages.get(timeout=seconds)
        except queue.Empty:
            return {"error": f"no answer in {seconds:.0f} s"}

    def end(self):
        self.process.kill()
        self.process.wait()


class Run:
    """The measurement: workers, the record, and the time left."""

    def __init__(self, asked, arguments, folder):
        self.asked, self.folder, self.started = asked, folder, time.perf_counter()
        self.record = {"model": "llama-8b", "tiny": asked.tiny, "layers": asked.layers or 32, "tokens": asked.tokens, "limit_s": asked.limit, "ways": {}, "failed": {}}
        names = [*(one for one in WAYS if one in asked.ways), *(["families"] if "families" in asked.ways else [])]
        logs = pathlib.Path(folder)
        self.workers = {way: Worker(way, arguments, open(logs / f"{way}.log", "w")) for way in names}

    def left(self):
        return self.asked.limit - (time.perf_counter() - self.started)

    def save(self, **more):
        self.record |= more | {"seconds": round(time.perf_counter() - self.started, 1)}
        if self.asked.json:
            pathlib.Path(self.asked.json).write_text(json.dumps(self.record, indent=1) + "\n")

    def take(self, worker, key, seconds, command=None):
        """Returns a worker's answer; None, and the end of the worker, if it fails or is late."""
        try:
            if command is not None:
                worker.ask(command)
            answer = worker.answer(max(seconds, 0))
        except OSError as error:
            answer = {"error": str(error)}
        if key in answer:
            print(json.dumps({worker.way: answer}), flush=True)
            return answer[key]
        worker.end()
        del self.workers[worker.way]
        log = pathlib.Path(self.folder, f"{worker.way}.log").read_text()[-400:]
        self.save(failed=self.record["failed"] | {worker.way: f"{answer.get('error', answer)[-1500:]} {log}".strip()})
        print(json.dumps({worker.way: self.record["failed"][worker.way]}), flush=True)
        return None

    def everything(self):
        ways = self.record["ways"]
        for worker in list(self.workers.values()):
            found = self.take(worker, "ready", self.left() - RESERVE)
            if found is not None and worker.way != "families":
                self.record |= found.pop("versions")
                ways[worker.way] = found | {"ready_s": round(time.perf_counter() - self.started, 1), "all": []}
                self.save()
        if {"plain", "loop"} <= set(self.workers):
            for way in ("plain", "loop"):
                if way in self.workers and (found := self.take(self.workers[way], "compare", self.left(), self.folder)) is not None and way == "loop":
                    self.save(compare=found)
        for _ in range(self.asked.rounds):
            for way in [one for one in WAYS if one in self.workers]:
                # A slow round must not take the time of the others.
                if self.left() > 5 and (found := self.take(self.workers[way], "run", self.left(), "run")) is not None:
                    row = ways[way]
                    row["all"].append(found["tokens_s"])
                    row["tokens_s"] = statistics.median(row["all"])
                    if "sampled_tokens_s" in found:
                        row.setdefault("sampled_all", []).append(found["sampled_tokens_s"])
                        row["sampled_tokens_s"] = statistics.median(row["sampled_all"])
                    self.save()
        rates = {way: row["tokens_s"] for way, row in ways.items() if "tokens_s" in row}
        pairs = [("packed", "plain"), ("packed_compiled", "plain_compiled"), ("loop", "plain"), ("loop", "plain_compiled"), ("loop", "packed_compiled")]
        self.save(medians=rates, over={f"{a} over {b}": rates[a] / rates[b] for a, b in pairs if a in rates and b in rates})
        if "families" in self.workers and (found := self.take(self.workers["families"], "families", self.left(), "families")) is not None:
            self.save(families=found)
        print(json.dumps({key: self.record.get(key) for key in ("medians", "over", "compare", "failed", "seconds")}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ways", default=",".join([*WAYS, "families"]), help="what to run, comma-separated [default: all]")
    parser.add_argument("--layers", type=int, help="number of layers [default: 32]")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each way")
    parser.add_argument("--limit", type=float, default=145, help="seconds after which everything has ended")
    parser.add_argument("--tiny", action="store_true", help="small shapes")
    parser.add_argument("--json", help="file for the record")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        return worker(asked)
    asked.ways = asked.ways.split(",")
    with tempfile.TemporaryDirectory() as folder:
        run = Run(asked, sys.argv[1:], folder)
        try:
            run.everything()
        finally:
            for one in run.workers.values():
                one.end()
            run.save()
    return int(bool(run.record["failed"]))


if __name__ == "__main__":
    sys.exit(main())
