#!/usr/bin/env python3
"""Measures diffusion transformers with packed weights on a GPU at real shapes: memory, and the time of
a denoising step.

    pip install target/wheels/buddy_memory-*.whl diffusers
    tools/diffusers_check.py                        # or with names of models, and --json RECORD

Weights are random. A model and its packed copy are both on the GPU and run in turn, --rounds times;
the record holds every time and the medians, and is written after every result. No model and no round
starts after --limit seconds. With --tiny, or without a GPU, shapes are small. Not run on a GPU yet.
"""

import argparse
import copy
import gc
import json
import pathlib
import statistics
import time

import diffusers
import torch

from buddy.torch import compress_

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def noise(*size):
    return torch.randn(*size, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(7)).bfloat16()


def flux(tiny):
    """FLUX.1: an image of 1024 x 1024 is 4096 tokens, a prompt 512."""
    joint, pooled, image, text = (128, 64, 16, 7) if tiny else (4096, 768, 4096, 512)
    small = dict(num_layers=1, num_single_layers=2, attention_head_dim=64, num_attention_heads=2, axes_dims_rope=(16, 24, 24)) if tiny else {}
    model = diffusers.FluxTransformer2DModel(guidance_embeds=True, joint_attention_dim=joint, pooled_projection_dim=pooled, **small)
    return model, dict(hidden_states=noise(1, image, 64), encoder_hidden_states=noise(1, text, joint), pooled_projections=noise(1, pooled),
                       timestep=torch.full((1,), 0.5, device=DEVICE).bfloat16(), guidance=torch.full((1,), 3.5, device=DEVICE).bfloat16(),
                       img_ids=torch.zeros(image, 3, device=DEVICE), txt_ids=torch.zeros(text, 3, device=DEVICE))


def sd35(tiny):
    """Stable Diffusion 3.5 Large: latents of 128 x 128, prompts of 77 and 256 tokens."""
    layers, heads, side, text, joint, pooled = (2, 2, 8, 7, 128, 64) if tiny else (38, 38, 128, 333, 4096, 2048)
    model = diffusers.SD3Transformer2DModel(
        sample_size=side, patch_size=2, in_channels=16, out_channels=16, num_layers=layers, attention_head_dim=64, num_attention_heads=heads,
        joint_attention_dim=joint, caption_projection_dim=64 * heads, pooled_projection_dim=pooled, pos_embed_max_size=192, qk_norm="rms_norm")
    return model, dict(hidden_states=noise(1, 16, side, side), encoder_hidden_states=noise(1, text, joint), pooled_projections=noise(1, pooled),
                       timestep=torch.full((1,), 500.0, device=DEVICE).bfloat16())


def wan(tiny):
    """Wan 2.1 14B: 17 frames of 480 x 832, which are 5 x 60 x 104 latents."""
    small = dict(num_attention_heads=2, attention_head_dim=64, text_dim=64, freq_dim=64, ffn_dim=256, num_layers=2) if tiny else {}
    frames, rows, columns, text = (2, 8, 8, 64) if tiny else (5, 60, 104, 4096)
    model = diffusers.WanTransformer3DModel(**small)
    return model, dict(hidden_states=noise(1, 16, frames, rows, columns), encoder_hidden_states=noise(1, 7 if tiny else 512, text),
                       timestep=torch.tensor([500], device=DEVICE))


MODELS = {"flux": flux, "sd3.5": sd35, "wan": wan}


def used() -> int:
    """Returns the bytes of device memory used by tensors."""
    gc.collect()
    return torch.cuda.memory_allocated() if DEVICE.type == "cuda" else 0


def step(model, inputs):
    """Returns the seconds and the result of a denoising step."""
    wait = torch.cuda.synchronize if DEVICE.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    with torch.no_grad():
        found = model(**inputs, return_dict=False)[0]
    wait()
    return time.perf_counter() - started, found


def check(row, say, late, name, tiny, rounds):
    """Measures one model, plain and packed."""
    torch.manual_seed(3)
    before, dtype = used(), torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with DEVICE:
            plain, inputs = MODELS[name](tiny)
    finally:
        torch.set_default_dtype(dtype)
    plain.to(torch.bfloat16).eval()
    middle = used()
    packed = compress_(copy.deepcopy(plain))
    say(parameters=plain.num_parameters(), plain_bytes=middle - before, packed_bytes=used() - middle)
    exact = compress_(copy.deepcopy(plain), exact=True)
    say(exact_same_bits=bool(torch.equal(step(exact, inputs)[1], step(plain, inputs)[1])))
    del exact
    wanted, found = step(plain, inputs)[1].float(), step(packed, inputs)[1].float()
    say(apart=(found - wanted).abs().max().item(), spread=wanted.std().item())
    seconds = {"plain": [], "packed": []}
    for _ in range(rounds):
        if late():
            say(late=True)
            break
        for kind, model in [("plain", plain), ("packed", packed)]:
            seconds[kind].append(step(model, inputs)[0])
        medians = {kind: statistics.median(all_seconds) for kind, all_seconds in seconds.items()}
        row |= {f"{kind}_step_s": {"median": medians[kind], "all": all_seconds} for kind, all_seconds in seconds.items()}
        say(packed_over_plain=medians["packed"] / medians["plain"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5, help="measurements, plain and packed in turn")
    parser.add_argument("--tiny", action="store_true", help="small shapes")
    parser.add_argument("--json", help="file for the record")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no model and no round after this many seconds")
    asked = parser.parse_args()
    record = {"gpu": torch.cuda.get_device_name() if DEVICE.type == "cuda" else None, "torch": torch.__version__,
              "diffusers": diffusers.__version__, "models": []}
    ends = time.perf_counter() + asked.limit
    late = lambda: time.perf_counter() > ends
    for name in asked.models:
        row = {"model": name}
        record["models"].append(row)

        def say(**more):
            row.update(more)
            print(json.dumps({"model": name} | more), flush=True)
            if asked.json:
                pathlib.Path(asked.json).write_text(json.dumps(record, indent=1) + "\n")

        if late():
            say(late=True)
        else:
            check(row, say, late, name, asked.tiny or DEVICE.type == "cpu", asked.rounds)


if __name__ == "__main__":
    main()
