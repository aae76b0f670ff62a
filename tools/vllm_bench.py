#!/usr/bin/env python3
"""Measures vLLM plain and with quantization="buddy" in one call, on normal weights of true shapes.

  tools/vllm_bench.py llama-8b --out record.json                 plain, then Buddy
  tools/vllm_bench.py llama-70b --variants buddy --batches 1     Buddy alone, where plain does not fit
  tools/vllm_bench.py small --variants plain,buddy,fp32 --check  greedy tokens and log-probabilities
  tools/vllm_bench.py llama-8b --cache-gb 41                     start all variants at once
  tools/vllm_bench.py llama-8b --variants plain,plain+kv,buddy+kv --batches "" --contexts 8x32768 --most 8192
                                                                 packed keys and values, with plain and packed weights

Each variant is a process of its own. The next one imports vLLM while the one before measures, and
waits for it. With ``--cache-gb`` all of them start at the same time, each with a KV cache of that
size, and measure in turn; memory and the times of loading then say nothing. Weights come through vLLM's own loading, named as in a checkpoint, a tensor at a time.
Needs a GPU with vLLM and buddy-memory; reads and downloads no model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

STARTED = time.perf_counter()
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
               "TOKENIZERS_PARALLELISM": "false", "VLLM_USE_FLASHINFER_SAMPLER": "0", "GLOO_SOCKET_IFNAME": "lo",
               "NCCL_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}
SHAPES = {
    "small": LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4, "num_attention_heads": 32,
                      "num_key_value_heads": 8, "head_dim": 64},
    "llama-8b": LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                         "num_key_value_heads": 8, "head_dim": 128},
    "llama-70b": LLAMA | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
                          "num_key_value_heads": 8, "head_dim": 128},
    "qwen3-30b-a3b": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
                      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
                      "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 48,
                      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 40960,
                      "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
}
PROMPT, STEPS, CAPTURED = 1024, 128, [1, 2, 4, 8, 16, 32, 64, 128, 256]


def write_folder(shape: str, options: dict | None) -> str:
    """Writes a model folder that holds config.json alone."""
    folder = tempfile.mkdtemp(prefix="vllm-bench-")
    config = SHAPES[shape] | {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
                              "bos_token_id": 1, "eos_token_id": 2, "dtype": "bfloat16"}
    if options is not None:
        config["quantization_config"] = {"quant_method": "buddy"} | options
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))
    return folder


def weights(shape: str):
    """Yields the names and shapes of a checkpoint."""
    of = SHAPES[shape]
    hidden, head = of["hidden_size"], of["head_dim"]
    queries, keys = of["num_attention_heads"] * head, of["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (of["vocab_size"], hidden)
    for layer in range(of["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows in [("q", queries), ("k", keys), ("v", keys)]:
            yield f"{at}self_attn.{name}_proj.weight", (rows, hidden)
        yield f"{at}self_attn.o_proj.weight", (hidden, queries)
        if "num_experts" in of:
            yield f"{at}self_attn.q_norm.weight", (head,)
            yield f"{at}self_attn.k_norm.weight", (head,)
            yield f"{at}mlp.gate.weight", (of["num_experts"], hidden)
        mlps = [f"mlp.experts.{i}." for i in range(of["num_experts"])] if "num_experts" in of else ["mlp."]
        inner = of.get("moe_intermediate_size", of["intermediate_size"])
        for mlp in mlps:
            yield f"{at}{mlp}gate_proj.weight", (inner, hidden)
            yield f"{at}{mlp}up_proj.weight", (inner, hidden)
            yield f"{at}{mlp}down_proj.weight", (hidden, inner)
        yield f"{at}input_layernorm.weight", (hidden,)
        yield f"{at}post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (of["vocab_size"], hidden)


def normal(name: str, size: tuple[int, ...]):
    """Returns a tensor of a checkpoint: normal values with a scale per row, as buddy.llm makes
    them; the same for every variant."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(zlib.crc32(name.encode()))
    if len(size) == 1:
        return (1 + 0.1 * torch.randn(size, generator=generator, device="cuda")).bfloat16()
    from buddy.llm.shapes import matrix

    return matrix(*size, generator)


def register_loader(shape: str) -> None:
    """Registers the load format ``normal``."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    @register_model_loader("normal")
    class NormalLoader(DefaultModelLoader):
        def download_model(self, model_config):
            pass

        def get_all_weights(self, model_config, model):
            self.counter_before_loading_weights = time.perf_counter()
            for name, size in weights(shape):
                yield name, normal(name, size)


class Engine:
    """vLLM with one variant, and what it measures."""

    def __init__(self, asked: dict):
        import torch
        from vllm import LLM

        register_loader(asked["shape"])
        self.asked, self.serial, self.phases = asked, 0, {}
        self.time_phases()
        weights, _, attention = asked["variant"].partition(":")[0].partition("+")
        buddy = weights == "buddy"
        most = max([256, *asked["batches"], *(batch for batch, _ in asked["contexts"])])
        longest = max([asked["length"], *(context for _, context in asked["contexts"]), *asked["most"], *(one + 1 for one in asked["prefill"])])
        options = dict(model=write_folder(asked["shape"], asked["options"] if buddy else None), load_format="normal", skip_tokenizer_init=True,
                       dtype="float32" if weights == "fp32" else "bfloat16", max_model_len=longest,
                       gpu_memory_utilization=asked["memory"], disable_log_stats=True, enable_prefix_caching=False, max_num_seqs=most,
                       max_num_batched_tokens=8192, seed=0)
        if asked["together"]:
            # Profiles of processes that share a GPU disturb each other.
            options |= {"kv_cache_memory_bytes": 2 << 30}
        if asked["cache_gb"]:
            options |= {"kv_cache_memory_bytes": int(asked["cache_gb"] * (1 << 30))}
        if attention == "kv":
            options |= {"attention_backend": "CUSTOM"}
        options["compilation_config"] = {"cudagraph_capture_sizes": [one for one in asked["captured"] if one <= most]}
        started = time.perf_counter()
        self.llm = LLM(**options)
        self.vocabulary = SHAPES[asked["shape"]]["vocab_size"]
        cache = self.llm.llm_engine.vllm_config.cache_config
        # vLLM keeps one block for itself.
        self.cache_tokens, self.most_sequences = (cache.num_gpu_blocks - 1) * cache.block_size, most
        self.start = {"start_s": time.perf_counter() - started, "kv_blocks": cache.num_gpu_blocks, "block": cache.block_size,
                      "allocated": torch.cuda.memory_allocated(), "most_allocated": torch.cuda.max_memory_allocated()}

    def time_phases(self) -> None:
        import importlib

        for module, owner, name in [("vllm.v1.worker.gpu_worker", "Worker", "load_model"),
                                    ("vllm.v1.worker.gpu_worker", "Worker", "determine_available_memory"),
                                    ("vllm.v1.worker.gpu_worker", "Worker", "compile_or_warm_up_model"),
                                    ("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "capture_model"),
                                    ("vllm.v1.worker.gpu.model_runner", "GPUModelRunner", "capture_model")]:
            try:
                holder = getattr(importlib.import_module(module), owner)
                plain = getattr(holder, name)
            except (ImportError, AttributeError):
                continue

            def timed(*args, _plain=plain, _name=name, **more):
                started = time.perf_counter()
                result = _plain(*args, **more)
                self.phases[_name] = time.perf_counter() - started
                return result

            setattr(holder, name, timed)

    def prompts(self, count: int, tokens: int, seed: int = 0) -> list:
        from vllm.inputs import TokensPrompt

        draw = random.Random(seed)
        return [TokensPrompt(prompt_token_ids=[draw.randrange(3, self.vocabulary) for _ in range(tokens)]) for _ in range(count)]

    def sampling(self, tokens: int, **more):
        from vllm import SamplingParams

        return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, **more)

    def add(self, prompt, tokens: int) -> str:
        from vllm.sampling_params import RequestOutputKind

        self.serial += 1
        self.llm.llm_engine.add_request(f"r{self.serial}", prompt, self.sampling(tokens, output_kind=RequestOutputKind.DELTA))
        return f"r{self.serial}"

    def decode(self, batch: int) -> dict:
        """Times the steps in which every sequence decodes; the median of steps gives the speed."""
        return self.time_decoding(batch, PROMPT, min(self.asked["steps"] + 1 + batch // 4, self.asked["length"] - PROMPT))

    def contexts(self, batch: int, context: int) -> dict:
        """Times the same with sequences that end at ``context`` tokens. The first ones decode while
        the last prompts are read, 8192 tokens a step at most."""
        new = self.asked["steps"] + 1 + batch * context // 4096
        if new >= context or batch * context > self.cache_tokens:
            raise ValueError(f"{batch} sequences of {context} tokens: the cache has room for {self.cache_tokens}, and {new} are new")
        return {"context": context} | self.time_decoding(batch, context - new, new)

    def most(self, context: int) -> dict:
        """Times as many sequences of ``context`` tokens as the cache holds at once."""
        batch = self.cache_tokens // context
        return {"cache_tokens": self.cache_tokens, "fit": batch} | self.contexts(min(batch, self.most_sequences), context)

    def time_decoding(self, batch: int, prompt: int, new: int) -> dict:
        engine, steps = self.llm.llm_engine, []
        for one in self.prompts(batch, prompt, batch):
            self.add(one, new)
        seen, before, ended = set(), None, False
        while engine.has_unfinished_requests():
            outputs = engine.step()
            now = time.perf_counter()
            is_steady = len(seen) == batch and not ended
            seen.update(one.request_id for one in outputs if one.outputs[0].token_ids)
            ended = ended or any(one.finished for one in outputs)
            if is_steady and before is not None and not ended and outputs:
                steps.append(now - before)
            before = now
        step = statistics.median(steps)
        return {"batch": batch, "tokens_s": batch / step, "step_ms": 1e3 * step, "mean_step_ms": 1e3 * statistics.mean(steps), "steps": len(steps)}

    def prefill(self, tokens: int, repeats: int = 5) -> dict:
        """Times a prompt of one sequence up to its first token; the fastest."""
        times = []
        for i in range(repeats):
            prompts = self.prompts(1, tokens, 100 + i)
            started = time.perf_counter()
            self.llm.generate(prompts, self.sampling(1), use_tqdm=False)
            times.append(time.perf_counter() - started)
        return {"prefill": tokens, "seconds": min(times), "tokens_s": tokens / min(times)}

    def mixed(self, requests: int, rate: float) -> dict:
        """Serves requests that arrive at random times, prompts of 256 to 2048 tokens, 32 to 128 new
        tokens each."""
        engine, draw = self.llm.llm_engine, random.Random(7)
        queue, at = [], 0.0
        for i in range(requests):
            at += draw.expovariate(rate)
            queue.append((at, self.prompts(1, draw.randrange(256, 2049), 1000 + i)[0], draw.randrange(32, 129)))
        arrived, first, last, tokens, started = {}, {}, {}, 0, time.perf_counter()
        while queue or engine.has_unfinished_requests():
            now = time.perf_counter() - started
            while queue and queue[0][0] <= now:
                due, prompt, count = queue.pop(0)
                arrived[self.add(prompt, count)] = due
            if not engine.has_unfinished_requests():
                time.sleep(max(0.0, queue[0][0] - now))
                continue
            for one in engine.step():
                now = time.perf_counter() - started
                found = len(one.outputs[0].token_ids)
                tokens += found
                if found:
                    first.setdefault(one.request_id, now), last.update({one.request_id: now})
        waits = [first[one] - due for one, due in arrived.items()]
        return {"requests": requests, "per_s": rate, "seconds": max(last.values()), "tokens_s": tokens / max(last.values()),
                "first_token_ms": 1e3 * statistics.mean(waits), "end_ms": 1e3 * statistics.mean(last[one] - due for one, due in arrived.items())}

    def check(self) -> dict:
        """Greedy tokens of the same prompts alone and together, and log-probabilities of the
        prompts' tokens."""
        prompts = self.prompts(16, 64, 5)
        tokens = lambda outputs: [list(one.outputs[0].token_ids) for one in outputs]
        alone = [tokens(self.llm.generate([one], self.sampling(24), use_tqdm=False))[0] for one in prompts]
        together = tokens(self.llm.generate(prompts, self.sampling(24), use_tqdm=False))
        scored = self.llm.generate(prompts, self.sampling(1, prompt_logprobs=0), use_tqdm=False)
        logs = [[next(iter(one.values())).logprob for one in output.prompt_logprobs[1:]] for output in scored]
        return {"alone": alone, "together": together, "logs": logs}

    def profile(self, batch: int, path: str) -> dict:
        """Kernels of a decode step by time."""
        from torch.profiler import ProfilerActivity, profile

        for prompt in self.prompts(batch, PROMPT, 3):
            self.add(prompt, 64)
        engine, steps = self.llm.llm_engine, 0
        for _ in range(24 + batch // 8):
            engine.step()
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
            for _ in range(8):
                steps += bool(engine.step())
        while engine.has_unfinished_requests():
            engine.step()
        found.export_chrome_trace(path)
        kernels: dict[str, list[float]] = {}
        for one in json.loads(pathlib.Path(path).read_text())["traceEvents"]:
            if one.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy"):
                kernels.setdefault(one["name"][:80], []).append(one["dur"])
        pathlib.Path(path).unlink()
        rows = sorted(((sum(times) / steps, len(times) / steps, name) for name, times in kernels.items()), reverse=True)
        return {"profile": batch, "steps": steps, "us_count_kernel": [[round(us, 1), round(count, 1), name] for us, count, name in rows[:24]]}


def wait_for(path: str) -> None:
    """Waits until a file exists; not at all for an empty name."""
    while path and not os.path.exists(path):
        time.sleep(0.05)


def child(asked: dict) -> None:
    """Measures one variant, in a process of its own; prints a JSON line per result."""
    say = lambda **row: print("RESULT " + json.dumps({"variant": asked["variant"], "t": round(time.perf_counter() - STARTED, 1)} | row), flush=True)
    import vllm  # before waiting, so that imports take no time of the GPU

    if not asked["cache_gb"]:
        wait_for(asked["after"])
    say(vllm=vllm.__version__, waited=True)
    engine = Engine(asked)
    say(start=engine.start | {"phases": engine.phases})
    engine.llm.generate(engine.prompts(2, 16), engine.sampling(4), use_tqdm=False)
    if asked["cache_gb"]:
        pathlib.Path(asked["done"] + ".ready").touch()
        for path in [*asked["all_ready"], asked["after"]]:
            wait_for(path)
    work = [(engine.check, ())] if asked["check"] else []
    work += [(engine.decode, (batch,)) for batch in asked["batches"]]
    work += [(engine.contexts, tuple(one)) for one in asked["contexts"]]
    work += [(engine.most, (tokens,)) for tokens in asked["most"]]
    work += [(engine.prefill, (tokens,)) for tokens in asked["prefill"]]
    work += [(engine.mixed, (asked["requests"], asked["rate"]))] if asked["requests"] else []
    work += [(engine.profile, (batch, f"{asked['done']}-{batch}.json")) for batch in asked["profile"]]
    for function, arguments in work:
        try:
            say(**{function.__name__: function(*arguments)})
        except Exception as error:  # a measurement that fails does not lose the others
            say(**{function.__name__: None}, error=repr(error)[:400])


def compare(results: dict[str, dict], variants: list[str]) -> dict:
    """Compares tokens and log-probabilities of the variants."""
    found = {}
    checks = {name: results[name]["check"] for name in variants if results.get(name, {}).get("check")}
    same = lambda a, b: statistics.mean(x == y for one, two in zip(a, b) for x, y in zip(one, two))
    for name, one in checks.items():
        found[f"{name}: tokens alone as together"] = same(one["alone"], one["together"])
        if "plain" in checks and name != "plain":
            found[f"{name}: tokens as plain"] = same(one["alone"], checks["plain"]["alone"])
            found[f"{name}: tokens as plain, together"] = same(one["together"], checks["plain"]["together"])
        if "fp32" in checks and name != "fp32":
            error = [abs(a - b) for x, y in zip(one["logs"], checks["fp32"]["logs"]) for a, b in zip(x, y)]
            found[f"{name}: mean error of log-probabilities beside fp32"] = statistics.mean(error)
            found[f"{name}: root mean square error beside fp32"] = math.sqrt(statistics.mean(one * one for one in error))
    return found


def main() -> None:
    numbers = lambda text: [int(one) for one in text.split(",") if one]
    pairs = lambda text: [[int(one) for one in pair.split("x")] for pair in text.split(",") if pair]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--variants", default="plain,buddy",
                        help="plain, fp32, buddy, or buddy:OPTIONS as JSON; with +kv behind the name, keys and values are packed; separated by commas or ;")
    parser.add_argument("--batches", type=numbers, default=numbers("1,8,32,64,128,256"))
    parser.add_argument("--contexts", type=pairs, default=[], help="sequences by tokens, as 8x32768,64x8192: decoding that ends there")
    parser.add_argument("--most", type=numbers, default=[], help="tokens of a sequence: decoding of as many sequences as the cache holds")
    parser.add_argument("--prefill", type=numbers, default=[])
    parser.add_argument("--profile", type=numbers, default=[])
    parser.add_argument("--requests", type=int, default=0, help="requests of the mixed load")
    parser.add_argument("--rate", type=float, default=16.0, help="their arrivals per second")
    parser.add_argument("--captured", type=numbers, default=CAPTURED, help="batch sizes of captured graphs")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--length", type=int, default=8192, help="tokens of a sequence at most")
    parser.add_argument("--memory", type=float, default=0.9)
    parser.add_argument("--cache-gb", type=float, default=0.0, help="start all variants at once, with KV caches of this size")
    parser.add_argument("--together", action="store_true", help="all variants at the same time: for --check alone")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--wait", default="", help="a file that must exist before the first variant starts")
    parser.add_argument("--out")
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="vllm-bench-")
    children, results, last = [], {}, asked.wait
    variants = asked.variants.split(";" if ";" in asked.variants else ",")
    for number, variant in enumerate(variants):
        options = json.loads(variant.partition(":")[2] or "{}")
        done = f"{folder}/{number}"
        task = vars(asked) | {"variant": variant, "options": options, "after": asked.wait if asked.together else last, "done": done,
                             "all_ready": [f"{folder}/{one}.ready" for one in range(len(variants))]}
        log = open(f"{done}.log", "w")
        process = subprocess.Popen([sys.executable, __file__, "--child", json.dumps(task)], stdout=subprocess.PIPE, stderr=log, text=True,
                                   env=os.environ | {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
        children.append((variant, process, done))
        last = done
    deadline = time.monotonic() + asked.timeout
    for variant, process, done in children:
        import threading

        threading.Timer(max(1.0, deadline - time.monotonic()), process.kill).start()
        rows = results.setdefault(variant, {})
        for line in process.stdout:
            if not line.startswith("RESULT "):
                continue
            row = json.loads(line.removeprefix("RESULT "))
            name = next(name for name in row if name not in ("variant", "t"))
            rows[name] = [*rows.get(name, []), row[name]] if name in ("decode", "contexts", "most", "prefill", "profile") else row[name]
            print(json.dumps({one: two for one, two in row.items() if one != "check"}), flush=True)
        code = process.wait()
        pathlib.Path(done).touch()
        log = pathlib.Path(f"{done}.log").read_text()
        said = [line for line in log.splitlines() if "buddy" in line.lower()]
        print("\n".join(said[-6:]))
        if code:
            print(f"{variant} ended with {code}\n" + log[-3000:])
    compared = compare(results, variants)
    print(json.dumps({"compared": compared}, indent=1))
    for variant in variants[1:]:
        base = {one["batch"]: one["tokens_s"] for one in results[variants[0]].get("decode", []) if one}
        for one in results[variant].get("decode", []):
            if one and one["batch"] in base:
                print(f"{variant}: batch {one['batch']}: {one['tokens_s']:.1f} tokens/s, {one['tokens_s'] / base[one['batch']]:.3f} of {variants[0]}")
        base = {(one["batch"], one["context"]): one["tokens_s"] for one in results[variants[0]].get("contexts", []) if one}
        for one in results[variant].get("contexts", []):
            if one and (at := (one["batch"], one["context"])) in base:
                print(f"{variant}: {at[0]} x {at[1]}: {one['tokens_s']:.1f} tokens/s, {one['tokens_s'] / base[at]:.3f} of {variants[0]}")
    for rows in results.values():
        rows.pop("check", None)  # long: `compared` is made of it
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps({"kind": "vllm-bench", "asked": vars(asked), "results": results, "compared": compared}, indent=1))
    os._exit(0)


if __name__ == "__main__":
    child(json.loads(sys.argv[2])) if sys.argv[1:2] == ["--child"] else main()
