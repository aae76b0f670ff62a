#!/usr/bin/env python3
"""Writes docs/reference/support.md, the table of what is supported, from the tests that ran.

    tools/support_matrix.py RESULTS...           writes the page
    tools/support_matrix.py --check RESULTS...   fails unless the page is as the results say

RESULTS are JUnit files of pytest; one that is named `oldest.xml` ran with the oldest Transformers,
`vllm-VERSION.xml` with a version of vLLM. A row names its tests by a regular expression; without a
passed test, or with a failed one, it fails. Rows of vLLM need one with every version.
"""

import argparse
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/support.md"
# Features by section: name, how, and a pattern of the tests that show it.
FEATURES = {
    "Models": [
        ("packed in memory, `compress_`", "same bits on the CPU", r"test_compress.*packed_models_compute"),
        ("packed while loading, and packed folders", "same bits on the CPU", r"test_transformers.*folder_loads_packed"),
        ("packed experts", "same bits on the CPU", r"test_experts.*compute_the_bits"),
        ("saving plain and packed folders", "same bits", r"test_transformers.*(saved_folders|saved_packed)"),
        ("options, `modules_to_not_convert`, `dequantize`", "errors for unknown options; same bits on the CPU", r"test_transformers.*(unknown_options|not_convert|dequantize)"),
        ("packed KV cache, assisted decoding, prompt lookup, `crop`", "same bits on the CPU; no beam search", r"test_transformers.*(lookup|cropped|beam|keys_and_values)"),
        ("`device_map` over several devices", "hooks and placement, with the CPU as two devices", r"test_devices.*hooks_of_their"),
        ("`buddy.llm`: Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3", "tokens of `generate` on the CPU; on an H200 by `tools/llm_check.py`", r"test_llm.*greedy_tokens"),
        ("diffusion transformers", "same bits on the CPU", r"test_diffusers.*compute_save"),
    ],
    "PyTorch": [
        ("`torch.compile`", "as one graph", r"test_compress.*compile_as_one_graph"),
        ("compiled `generate` with a static cache", "the graphs and tokens of the plain model", r"test_transformers.*compiled_generation"),
        ("DDP, FSDP2", "two processes, gloo", r"test_distributed.*two_processes"),
        ("`compress_saved`: packed saved tensors", "gradients bit-equal", r"test_saved\."),
        ("CUDA graphs", "launch arguments with a stub driver; on a GPU by `tools/torch_check.py`", r"test_linear_plan.*linear_plan"),
    ],
    "Adapters": [
        ("LoRA (PEFT): train, merge, unmerge", "gradients and merges exact", r"test_adapters.*peft"),
        ("Transformers' `Trainer`", "adapters after three steps bit-equal", r"test_adapters.*trainer"),
        ("LoRA in Diffusers", "train and fuse, exact", r"test_diffusers.*lora"),
    ],
    "vLLM": [
        ("`quantization=\"buddy\"`: plain and packed folders", "same bits, layer by layer", r"test_vllm\.test_(weights_are|a_packed_folder)"),
        ("packed experts", "within rounding of the plain product", r"test_vllm\.test_packed_experts"),
        ("LoRA adapters", "same bits on the CPU as over plain layers", r"test_vllm_lora.*gives_over_plain"),
        ("tensor parallelism", "two ranks", r"test_ranks.*two_ranks"),
        ("new weights by `reload_weights`", "same bits, in the same memory", r"test_vllm\.test_new_weights"),
        ("host cache, `BuddyOffloadingSpec`", "same bits after eviction and reuse", r"test_vllm_offload.*every_block"),
    ],
}
# GPUs: what CI compiles, and what records measured.
GPUS = [
    ("8.0 to 8.9 (Ampere, Ada)", "pack, unpack, buffers; linear layers of up to 32 tokens in place, others unpack and call cuBLAS",
     "compiled for sm_80, the kernels of layers for sm_86 and sm_89 too", "no"),
    ("9.0 (Hopper)", "also linear layers and attention on packed data; experts with `BUDDY_EXPERTS=grouped`, in vLLM with `experts`", "compiled for sm_90; emulated", "H200"),
    ("10.0 (Blackwell, B200)", "as 8.0; attention on packed data", "compiled for sm_100", "no"),
    ("12.0 (Blackwell, RTX)", "as 8.0", "the kernels of layers compiled for sm_120", "no"),
    ("CPU", "pack, unpack, layers by unpacking", "tests", "yes"),
]
DTYPES = [("bf16", "weights in layers, KV cache, any tensor"), ("fp16, fp32, fp64, int64, complex64", "tensors and saved tensors, by `pack`"),
          ("other dtypes", "tensors, by `pack`")]


class Results:
    """Passed and failed tests of the result files."""

    def __init__(self, paths):
        self.passed, self.failed = collections.defaultdict(list), []
        for path in paths:
            kind = path.stem if path.stem == "oldest" or path.stem.startswith("vllm-") else "newest"
            for case in xml.etree.ElementTree.parse(path).iter("testcase"):
                name = f"{case.get('classname')}.{case.get('name')}"
                outcomes = {child.tag for child in case}
                if outcomes & {"failure", "error"}:
                    self.failed.append(name)
                elif "skipped" not in outcomes:
                    self.passed[kind].append(name)

    def matching(self, pattern, kind="newest"):
        return [name for name in self.passed[kind] if re.search(pattern, name)]

    def parameters(self, pattern, kind):
        """Returns the families, the first parameter of each test that matches."""
        found = (re.search(r"\[([^\]]*)\]$", name) for name in self.matching(pattern, kind))
        return {one.group(1).split("-")[-1] if one.group(1).startswith(("eager", "batched", "grouped")) else one.group(1) for one in found if one}


def versions(name):
    """Returns package versions of a requirements file."""
    lines = (ROOT / "python" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def vllm_versions():
    """Returns the versions of vLLM that tools/python_check.sh tests."""
    return re.search(r'^vllm_versions="(.*)"$', (ROOT / "tools/python_check.sh").read_text(), re.MULTILINE).group(1).split()


def missing(results):
    """Returns the features without a passed test."""
    kinds = {section: [f"vllm-{one}" for one in vllm_versions()] if section == "vLLM" else ["newest"] for section in FEATURES}
    return [f"{feature} ({kind})" for section, rows in FEATURES.items() for feature, _, pattern in rows
            for kind in kinds[section] if not results.matching(pattern, kind)]


def table(head, rows):
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]])


def families(results, newest, oldest, diffusers):
    """Returns rows of the versions of a library and the model families that ran with exactly these."""
    pattern = r"test_transformers\.test_a_packed_folder_loads_packed|test_experts\.test_folders_load_packed"
    new, old = (results.parameters(pattern, kind) for kind in ("newest", "oldest"))
    diffusion = results.parameters(r"test_diffusers\.test_packed_transformers", "newest")
    rows = [(f"Transformers {newest} and {oldest}", new & old), (f"Transformers {newest} alone", new - old),
            (f"Transformers {oldest} alone", old - new), (f"Diffusers {diffusers}", diffusion)]
    return [[versions, ", ".join(sorted(names))] for versions, names in rows if names]


def page(results):
    newest = versions("requirements-test.txt")
    oldest = versions("requirements-oldest.txt") | versions("requirements-oldest-torch.txt")
    diffusers = versions("requirements-diffusers.txt")
    ends = lambda name: f"{oldest[name]} to {newest[name]}"
    parts = ["# What is supported", "Written by `tools/support_matrix.py` from the results of CI's Python tests; a row without a passed test\n"
             "is an error there. \"Same bits\" is `torch.equal` with the plain model.",
             "## Versions", table(["package", "tested"], [["PyTorch", ends("torch") + ", the oldest outside CI"], ["Transformers", ends("transformers")], ["PEFT", newest["peft"]],
                                                          ["Accelerate", newest["accelerate"]], ["Diffusers", diffusers["diffusers"]],
                                                          ["vLLM", " and ".join(vllm_versions())]]),
             "## Hardware", table(["GPU, compute capability", "what works", "checked in CI", "measured"], map(list, GPUS)),
             "## Dtypes", table(["dtype", "packed"], map(list, DTYPES)),
             "## Architectures", "Tiny random models on the CPU, packed while loading and from packed folders.",
             table(["tested with", "families"], families(results, newest["transformers"], oldest["transformers"], diffusers["diffusers"])),
             "## Features"]
    for section, rows in FEATURES.items():
        parts += [f"### {section}", table(["feature", "how"], [[feature, how] for feature, how, _ in rows])]
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = Results(options.results)
    if (without := missing(results)) or results.failed:
        sys.exit(f"features without a passed test: {without}; failed tests: {results.failed}")
    text = page(results)
    if not options.check:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what the results say: run tools/support_matrix.py {' '.join(map(str, options.results))}")


if __name__ == "__main__":
    main()
