#!/usr/bin/env python3
"""Checks the Python package on a GPU: the same bits as the CPU's, graphs, compilation, streams, training to the bit.

    pip install target/wheels/buddy_memory-*.whl
    tools/torch_check.py            # or with words of the checks that are wanted

Needs PyTorch and a GPU. Each check prints a line; a failed one ends with its traceback, and the exit code is 1.
"""

import copy
import gc
import pathlib
import sys
import time
import traceback

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests"))

from buddy import _native
from buddy.llm import PagedCache
from buddy.llm.decoder import gates_and_values, in_turn
from buddy.torch import activations, compress_, compress_saved, linear, linear_room, pack, pack_weight, swap_, unpack
from buddy.torch.layout import room
from buddy.torch.ops import place, span
from networks import ALL, Block, Convolutions, SquaredRelu, compare, equal, gradients, mlp

GPU = torch.device("cuda")


def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(left, right):
    assert (left.shape, left.dtype) == (right.shape, right.dtype) and torch.equal(raw(left), raw(right))


def tensors():
    for dtype in [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8]:
        for shape in [(1000, 64), (7,), (333, 65), (0,)]:
            yield (torch.randn(shape).relu() * 3).to(dtype)
    yield torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    # Nearly all entries in a window of exponents, some not, some zeros, some without a sign or an odd mantissa.
    dense = torch.randn(4000, 64).bfloat16()
    dense[::7, 3] *= 1e-9
    dense[::11], dense[5::13], dense[6::17] = 0, dense[5::13].abs(), (dense[6::17].view(torch.int16) & ~1).view(torch.bfloat16)
    yield dense


def check_the_gpu_writes_the_bits_of_the_cpu():
    for plain in tensors():
        here = pack(plain)
        there = pack(plain.to(GPU), codec=here.codec, target=here.target)
        assert here.nbytes == there.nbytes, (here, there)
        same(there.data.cpu(), here.data)
        same(here.to(GPU).unpack().cpu(), plain)
        same(unpack(there).cpu(), plain)
        same(pack(plain.to(GPU)).unpack().cpu(), plain)


def check_packing_with_sums_writes_the_same_bytes():
    """In two kernels with zeros to add up in, which are zeros again, what one step more writes; little that overflows, much, none, and too much."""
    sums = torch.zeros(1024, dtype=torch.uint8, device=GPU)
    for count in [1, 500, 40000, 1 << 20]:
        for far in [0, 1 << 30, 997, 3]:
            x = torch.randn(count, 64, device=GPU).bfloat16()
            if far:
                x[::far, ::2] *= 1e-9
            for target in ["4/3x", "2x"]:
                buffers = [torch.zeros(room(target, 0, x.nbytes, x.nbytes // 32), dtype=torch.uint8, device=GPU) for _ in range(2)]
                for buffer, zeros in zip(buffers, [(0, 0), span(sums)]):
                    _native.freeze(place(x), ("bf16:112", target, 0), span(x), span(buffer), 0, (0, 0), zeros)
                assert torch.equal(*buffers) and not sums.any(), (count, far, target)
                back = torch.empty_like(x)
                _native.read_frozen(place(x), ("bf16:112", target, 0), span(buffers[1]), span(back))
                same(back, x)
        print(f"    {x.nbytes} bytes, of which {int(buffers[1][48:52].view(torch.int32))} sectors overflow")


def check_activations_are_pytorchs_to_the_bit():
    """All values of bf16, and normal ones; gradients of random numbers; room that is enough and room that is not."""
    every = torch.arange(-32768, 32768, device=GPU, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for kind in [activations.RELU, activations.SQUARED_RELU]:
        for x in [every.repeat(3), torch.randn(1 << 20, device=GPU).bfloat16(), torch.randn(4, 64, 9, 8, device=GPU).bfloat16()
                  .contiguous(memory_format=torch.channels_last), torch.randn(64 * 37, device=GPU).bfloat16()]:
            kept, g = kind.kept(x), torch.randn(x.shape, device=GPU).bfloat16()
            wanted = [kind.forward(kept), kind.forward(kept), kind.backward(kept, g)]
            for target in ["4/3x", "2x"]:
                how = ("bf16:112", target, 0)
                for in_place in [False, True] if kind is activations.RELU else [False]:
                    source = x.clone()
                    y, again, of_x = source if in_place else torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
                    packed = torch.empty(room(target, 0, x.nbytes, x.nbytes // 32), dtype=torch.uint8, device=GPU)
                    where, g = place(x), torch.empty_like(x).copy_(g)
                    _native.activate(where, how, kind.name, span(source), span(y), span(packed), 0)
                    _native.activated(where, how, kind.name, span(packed), span(again))
                    _native.activation_gradients(where, how, kind.name, span(packed), span(g), span(of_x))
                    for one, other in zip([y, again, of_x], wanted):
                        # Any NaN for a NaN.
                        same_bits = (one.view(torch.int16) == other.view(torch.int16)) | (one.isnan() & other.isnan())
                        assert same_bits.all(), (kind.name, target, in_place, x.shape, x[~same_bits][:4], one[~same_bits][:4], other[~same_bits][:4])
                    # What is packed is what packing alone writes, with one NaN for all.
                    plain = torch.zeros_like(packed)
                    _native.freeze(where, how, span(torch.where(kept.isnan(), every[0x7fff - 0x8000], kept)), span(plain), 0)
                    used = room(target, 0, x.nbytes, int(plain[48:52].view(torch.int32)))
                    values = torch.empty_like(x)
                    _native.read_frozen(where, how, span(packed), span(values))
                    assert ((values.view(torch.int16) == kept.view(torch.int16)) | (values.isnan() & kept.isnan())).all()
                    assert torch.equal(packed[:128], plain[:128]) and used <= packed.numel()


def check_batch_normalisation_with_its_relu_is_pytorchs():
    """The one kernel against PyTorch's two; all values of bf16 in every channel."""
    every = torch.arange(-32768, 32768, device=GPU, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for channels in [8, 64, 256, 2048]:
        norm = swap_(nn.Sequential(nn.BatchNorm2d(channels)))[0].to(GPU, torch.bfloat16)
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
        x = torch.cat([every.view(1, 1, -1, 256).expand(1, channels, -1, -1), torch.randn(1, channels, 64, 256, device=GPU).bfloat16()], 2)
        x = x.contiguous(memory_format=torch.channels_last)
        mean, deviation = torch.randn(channels, device=GPU), torch.rand(channels, device=GPU) + 0.1
        found, wanted = norm._again(x, mean, deviation, True), norm._again(x, mean, deviation, False).relu_()
        assert ((found.view(torch.int16) == wanted.view(torch.int16)) | (found.isnan() & wanted.isnan())).all(), channels


def check_swapped_models():
    cases = [(nn.Sequential(Block(), Block(activation=nn.ReLU())), (8, 128, 64)),
             (nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 16, 3)), (8, 16, 34, 34))]
    for model, shape in cases:
        for options in [{}, {"least": "4/3x"}, {"overflow": "device", "in_flight_bytes": 0}, {"overflow": "device"}]:
            plain, swapped = copy.deepcopy(model).to(GPU, torch.bfloat16), swap_(copy.deepcopy(model)).to(GPU, torch.bfloat16)
            if len(shape) == 4:
                plain, swapped = plain.to(memory_format=torch.channels_last), swapped.to(memory_format=torch.channels_last)
            batch = torch.randn(shape, device=GPU, dtype=torch.bfloat16)
            for _ in range(3):
                wanted = gradients(plain, batch)
                with compress_saved(swapped, **{"least_bytes": 256, **options}) as mem:
                    found = gradients(swapped, batch)
                equal(found, wanted)
            report = mem.report()
            assert report.recomputed > 0 and "not PyTorch's bits" not in report.skipped, report
            equal([*swapped.buffers()], [*plain.buffers()])
            print(f"    {report.tensors} packed, {report.recomputed} computed again")


def check_views_and_other_streams():
    base = torch.randn(400, 96, device=GPU).bfloat16()
    side = torch.cuda.Stream()
    for view in [base.t(), base[3:, 5::2], base[0].expand(9, 96), base.flatten()[1:]]:
        same(unpack(pack(view)), view.contiguous())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = unpack(pack(view))
        torch.cuda.current_stream().wait_stream(side)
        same(found, view.contiguous())


def check_products():
    for outputs, inputs in [(512, 256), (1000, 4096), (4096, 1024)]:
        weight = (torch.randn(outputs, inputs, device=GPU) * 0.02).bfloat16()
        packed, bias = pack_weight(weight), torch.randn(outputs, device=GPU).bfloat16()
        for tokens in [1, 5, 8, 13, 16, 40, 128, 300]:
            x = torch.randn(tokens, inputs, device=GPU).bfloat16().requires_grad_()
            wanted = torch.nn.functional.linear(x, weight, bias)
            same(linear(x, packed, bias, exact=True), wanted)
            scratch = torch.zeros(linear_room(packed, tokens), dtype=torch.uint8, device=GPU)
            for found in [linear(x, packed, bias), linear(x, packed, bias, scratch=scratch), linear(x, packed, bias, scratch=scratch)]:
                error = (found.float() - wanted.float()).abs().max() / wanted.float().abs().max()
                assert error < 0.01, (outputs, inputs, tokens, error)
            (one,) = torch.autograd.grad(linear(x, packed, bias).float().sum(), x)
            (other,) = torch.autograd.grad(wanted.float().sum(), x)
            same(one, other)


def check_packed_layers_give_the_same_bits_in_every_way():
    """At once, by the operator, in a graph, and in a compiled model's graphs, which share counts and overlap; layers of one shape in a row."""
    layers = compress_(nn.Sequential(*(nn.Linear(1024, 1024, bias=number == 1) for number in range(4)), nn.Linear(1024, 300)).bfloat16().to(GPU))
    layers.requires_grad_(False).eval()
    compiled = torch.compile(layers, mode="reduce-overhead", fullgraph=True, dynamic=False)
    for tokens in [1, 8, 13, 100]:
        x = torch.randn(tokens, 1024, device=GPU).bfloat16()
        wanted = layers(x.clone().requires_grad_()).detach()
        for _ in range(3):
            same(layers(x), wanted)
            with torch.no_grad():
                same(layers(x), wanted)
                same(compiled(x).clone(), wanted)
        graph, out = torch.cuda.CUDAGraph(), None
        with torch.no_grad(), torch.cuda.graph(graph):
            out = layers(x)
        for _ in range(100):
            x.copy_(torch.randn(tokens, 1024, device=GPU))
            graph.replay()
            with torch.no_grad():
                same(out, layers(x))
                same(compiled(x).clone(), out)
    for layer in layers:
        assert not layer.store.counts.any(), "counts are zeros after as before"


def check_products_that_gate():
    """SwiGLU at the end of a product is that of a kernel of its own, to the bit."""
    for inner, inputs in [(256, 256), (1000, 512), (2048, 4096)]:
        packed = pack_weight(in_turn((torch.randn(2 * inner, inputs, device=GPU) * 0.1).bfloat16()))
        how = (packed.codec, packed.target, packed.row)
        for tokens in [1, 3, 8, 13, 32, 50, 100, 200]:
            x = torch.randn(tokens, inputs, device=GPU).bfloat16()
            scratch = torch.zeros(linear_room(packed, tokens), dtype=torch.uint8, device=GPU)
            both = torch.cat(gates_and_values(linear(x, packed, scratch=scratch)), -1)
            wanted, found = (torch.full((tokens, inner), 7.0, dtype=torch.bfloat16, device=GPU) for _ in range(2))
            _native.decode_gate(place(x), span(both), span(wanted), tokens)
            weights = (span(packed.data), packed.plain_bytes)
            _native.linear_ahead(place(x), how, weights, span(x), span(found), span(scratch), True)
            same(found, wanted)


def quarter_turns(positions, half):
    """Rotary embedding by right angles: products and sums are exact, so that anybody's are the same."""
    which = torch.randint(0, 4, (positions, half), device=GPU)
    return torch.stack([torch.tensor([1.0, 0, -1, 0], device=GPU)[which], torch.tensor([0, 1.0, 0, -1], device=GPU)[which]], -1).contiguous()


def turned(x, turns):
    """Heads (sequences, heads, values), each by its sequence's turns (sequences, half, 2)."""
    first, second = x.float().chunk(2, -1)
    cos, sin = (one.unsqueeze(1) for one in turns.unbind(-1))
    return torch.cat([first * cos + -second * sin, second * cos + first * sin], -1).bfloat16()


def check_fresh_tokens_are_turned_appended_and_attended_to():
    """In one launch, what turning, appending and attending give one after the other, to the bit."""
    for head, heads, group, sequences, capacity in [(128, 8, 4, 1, 1100), (128, 8, 4, 8, 320), (64, 4, 1, 3, 700), (64, 2, 16, 2, 100), (128, 2, 8, 40, 200)]:
        caches = [PagedCache(1, heads, head, sequences, capacity) for _ in range(2)]
        old = torch.randn(2, sequences, capacity - 40, heads, head, device=GPU).bfloat16()
        old[:, :, ::9] *= 1e-6
        lengths = torch.randint(1, capacity - 40, (sequences,), dtype=torch.int32, device=GPU)
        lengths[0] = capacity - 40
        for cache in caches:
            cache.append(0, old[0], old[1], 0)
            cache.lengths.copy_(lengths)
        turns = quarter_turns(capacity, head // 2)
        for step in range(34):
            rows = torch.randn(sequences, group + 2, heads, head, device=GPU).bfloat16()
            if step % 3 == 0:
                rows[..., ::7] *= 1e-7  # beyond a window of exponents
            if step % 5 == 4:
                rows[:, group:, :, step:] = 0
            queries, keys, values = rows.view(sequences, -1, head).split([heads * group, heads, heads], 1)
            results = [torch.full((sequences, heads * group * head), 7.0, dtype=torch.bfloat16, device=GPU) for _ in caches]
            for cache in caches:
                cache.lengths += 1
            at = (caches[0].lengths - 1).long()
            caches[0].attend_fresh(0, rows, turns, results[0], head**-0.5)
            pages = caches[1].table[torch.arange(sequences, device=GPU), at // 64].long() * 64 + at % 64
            plain = turned(keys, turns[at]).contiguous(), values.contiguous()
            _native.kv_append(caches[1].place, caches[1].native, (span(plain[0]), span(plain[1]), 0, heads * head, 0, 1, sequences), span(pages))
            caches[1].attend(0, turned(queries, turns[at]).reshape(sequences, -1), results[1], head**-0.5)
            same(*results)
        for one, other in zip(*(cache.read(0, capacity - 6) for cache in caches)):
            same(one, other)


def check_graphs():
    weight, x = (torch.randn(512, 256, device=GPU) * 0.02).bfloat16(), torch.randn(8, 256, device=GPU).bfloat16()
    packed = pack_weight(weight)

    def step():
        saved = pack(x, codec="bf16:112", target="4/3x", sectors=64)
        return linear(unpack(saved), packed), linear(x, packed)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        for output, wanted in zip(outputs, step()):
            same(output, wanted)


def check_compilation():
    weight, x = (torch.randn(512, 256, device=GPU) * 0.02).bfloat16(), torch.randn(8, 256, device=GPU).bfloat16()
    packed = pack_weight(weight)

    def step(x):
        saved = pack(x, codec="bf16:112", target="4/3x", sectors=64)
        return linear(unpack(saved), packed).relu() + 1

    for options in [{}, {"mode": "reduce-overhead"}]:
        compiled = torch.compile(step, fullgraph=True, **options)
        for _ in range(4):
            x = torch.randn_like(x)
            same(compiled(x).clone(), step(x))


def check_pytorchs_checks_of_operators():
    weight, x = (torch.randn(96, 128, device=GPU)).bfloat16(), torch.randn(5, 128, device=GPU).bfloat16()
    packed, ops = pack_weight(weight), torch.ops.buddy
    torch.library.opcheck(ops.pack.default, (weight, packed.codec, "4/3x", packed.row, 192))
    torch.library.opcheck(ops.unpack.default, (packed.data, packed.codec, "4/3x", packed.row, [96, 128], torch.bfloat16))
    torch.library.opcheck(ops.linear.default, (x.requires_grad_(), packed.data, None, None, packed.codec, 96, False))


def check_saved_activations():
    cases = [(mlp(), (32, 64)), (Block(), (2, 128, 64)), (Block(activation=SquaredRelu()), (2, 128, 64)),
             (Convolutions(), (2, 16, 24, 24)), (nn.LSTM(32, 32, batch_first=True), (4, 9, 32))]
    for model, shape in cases:
        for dtype in [torch.float32, torch.bfloat16]:
            for options in [{}, {"overflow": "device", "in_flight_bytes": 0}, {"overflow": "device"}, {"most_overflow": 0.1}]:
                mem = compare(copy.deepcopy(model).to(GPU, dtype), torch.randn(shape, device=GPU, dtype=dtype), steps=3, **options)
                assert mem.report().tensors > 0 or "most_overflow" in options
                assert not mem._flight.pending


def captured_step(model, batch, **options):
    """A graph of a step, forward and backward, and the gradients that it leaves."""
    def step():
        model.zero_grad(set_to_none=True)
        with compress_saved(model, least_bytes=256, **options) as mem:
            loss = model(batch).float().square().mean()
        loss.backward()
        return mem

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        # The first ones learn.
        for _ in range(5):
            before = step().report()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mem = step()
    report = mem.report()
    assert (report.tensors, report.recomputed) == (before.tensors, before.recomputed) and report.tensors > 0, f"{before}\n{report}"
    return graph, report


def check_captured_steps():
    """Gradients of a captured step, on data that fits its targets and on data that does not, with other steps between."""
    cases = [(nn.Sequential(Block(), Block(activation=nn.ReLU())), (8, 128, 64)),
             (nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.Conv2d(32, 16, 3), nn.ReLU(),
                            nn.Conv2d(16, 16, 3)), (8, 16, 34, 34))]
    for model, shape in cases:
        for options in [{}, {"least": "4/3x"}]:
            swapped = swap_(copy.deepcopy(model)).to(GPU, torch.bfloat16)
            batch = torch.randn(shape, device=GPU, dtype=torch.bfloat16)
            if len(shape) == 4:
                swapped, batch = swapped.to(memory_format=torch.channels_last), batch.contiguous(memory_format=torch.channels_last)
            plain = copy.deepcopy(swapped)
            graph, report = captured_step(swapped, batch, **options)
            grads = [p.grad for p in swapped.parameters()]
            for number in range(6):
                data = torch.randn(shape, device=GPU) * 10.0 ** (number - 3)
                if number % 2:
                    data *= torch.exp(4 * torch.randn(shape, device=GPU))  # exponents all over
                batch.copy_(data)
                graph.replay()
                found = [one.clone() for one in grads]
                equal(found, gradients(plain, batch)[:-1])
                with compress_saved(plain, **ALL):
                    equal(gradients(plain, batch)[:-1], found)
            print(f"    {report.tensors} packed, {report.recomputed} computed again, in a graph")


def check_saved_on_other_streams():
    model = nn.Sequential(Block(), Block(activation=nn.ReLU())).to(GPU, torch.bfloat16)
    plain, side = copy.deepcopy(model), torch.cuda.Stream()
    batch = torch.randn(8, 256, 64, device=GPU, dtype=torch.bfloat16)
    for number in range(6):
        wanted = gradients(plain, batch)
        side.wait_stream(torch.cuda.current_stream())
        model.zero_grad()
        with compress_saved(model, **ALL, overflow="host" if number % 2 else "device"):
            middle = model[0](batch)
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                # Saved on one stream and again on another.
                output = model[1](middle) + 0 * middle.square()
                del middle
                loss = output.float().square().mean()
            junk = [torch.randn(8, 256, 256, device=GPU) for _ in range(20)]
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()
        torch.cuda.synchronize()
        equal([p.grad for p in model.parameters()], wanted[:-1])
        del junk


def check_plain_memory_goes():
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]).to(GPU, torch.bfloat16)
    batch, used = torch.randn(16384, 2048, device=GPU, dtype=torch.bfloat16), {}
    for name in ["plain", "packed", "packed"]:
        gc.collect()
        start = torch.cuda.memory_allocated()
        with compress_saved(model) if name == "packed" else torch.enable_grad():
            loss = model(batch).float().square().mean()
        torch.cuda.synchronize()
        if name == "packed":
            print("   ", str(compress_saved(model).report()).replace("\n", "\n    "))
        used[name] = torch.cuda.memory_allocated() - start
        loss.backward()
        model.zero_grad(set_to_none=True)
        del loss
        gc.collect()
        torch.cuda.synchronize()
        compress_saved(model).report()
        print(f"    {name}: {used[name] / 1e6:.0f} MB after the forward pass, {torch.cuda.memory_allocated() - start} bytes left")
    assert used["packed"] < 0.7 * used["plain"], used


def main():
    torch.use_deterministic_algorithms(True)
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_") or not any(word in name for word in sys.argv[1:] or ["check_"]):
            continue
        torch.manual_seed(1)
        start = time.perf_counter()
        try:
            check()
            torch.cuda.synchronize()
            print(f"ok     {name[6:].replace('_', ' ')} ({time.perf_counter() - start:.1f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED {name[6:].replace('_', ' ')}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
