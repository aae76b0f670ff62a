"""Random calls of the bindings on the CPU: an exception or the reference result.

Shapes, strides, dtypes, codecs, targets, lengths and packed bytes are drawn at random; some are
valid. A child process makes the calls, so that a signal fails the test too. A panic of native code
is no `Exception`, which ends the child. ``BUDDY_CALLS`` sets the number of calls,
``BUDDY_CALLS_SEED`` their seed. ``python test_random_calls.py 1 SEED NUMBER`` makes one call again.
"""

import collections
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import pytest

CALLS = int(os.environ.get("BUDDY_CALLS", 3000))
SEED = int(os.environ.get("BUDDY_CALLS_SEED", 1))
# Errors of wrong arguments. `KeyError`: a target that `layout` does not know.
ERRORS = (ValueError, TypeError, RuntimeError, IndexError, KeyError, OverflowError, MemoryError)
CPU = (-1, 0)
# A GPU that no machine has.
NO_GPU = (4096, 0)


def test_random_calls_raise_or_give_the_reference():
    pytest.importorskip("torch")
    command = [sys.executable, __file__, str(CALLS), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    about = "\n".join([f"exit code {done.returncode}", *done.stdout.splitlines()[-3:], *done.stderr.splitlines()[-40:]])
    assert done.returncode == 0, about
    counts = json.loads(done.stdout.splitlines()[-1])
    print(counts)
    # Each kind of call succeeds sometimes, and fails sometimes.
    assert all(kind["right"] and kind["errors"] for kind in counts.values()), counts
    assert sum(kind["right"] + kind["errors"] for kind in counts.values()) == CALLS


class Calls:
    """Draws arguments and makes calls."""

    def __init__(self, seed, folder):
        import torch

        import buddy
        import buddy.kv
        import buddy.sparse
        import buddy.torch
        from buddy import _native
        from buddy.torch import ops

        torch.set_num_threads(1)
        self.torch, self.buddy, self.native, self.ops = torch, buddy, _native, ops
        self.dice, self.about = random.Random(seed), []
        torch.manual_seed(seed)
        self.sealed, self.matrix = self.packed_model(folder)

    def packed_model(self, folder):
        """Returns the bytes of a packed matrix with checksums, and the matrix."""
        torch = self.torch
        matrix = (torch.randn(64, 128) * 0.02).bfloat16()
        header = json.dumps({"w": {"dtype": "BF16", "shape": [64, 128], "data_offsets": [0, 16384]}}).encode()
        (folder / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(matrix.view(torch.uint8).flatten().tolist()))
        self.native.pack_model(folder / "m.safetensors", folder / "p.safetensors", True)
        file = (folder / "p.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", file[:8])
        start, end = json.loads(file[8 : 8 + length])["w"]["data_offsets"]
        return torch.frombuffer(bytearray(file[8 + length + start : 8 + length + end]), dtype=torch.uint8), matrix

    def one_of(self, *choices):
        return self.dice.choice(choices)

    def mostly(self, right, *wrong):
        """Returns the right value, or now and then another."""
        return right if self.dice.random() < 0.8 else self.one_of(*wrong)

    def size(self):
        return self.one_of(0, 1, 2, 5, 63, 64, 65, 128, 192, 256, self.dice.randrange(400))

    def dtype(self):
        torch = self.torch
        return self.one_of(torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
                           torch.bool, torch.complex64)

    def tensor(self, shape=None, dtype=None):
        """Returns a tensor, which may be a view with strides."""
        torch, dice = self.torch, self.dice
        shape = [self.size() for _ in range(dice.randrange(4))] if shape is None else list(shape)
        dtype = dtype or self.dtype()
        while len(shape) > 2 and shape[0] * shape[1] * shape[-1] > 1 << 18:
            shape.pop(0)
        layout = dice.randrange(6)

        def fill(shape):
            if dice.random() < 0.3:
                return torch.randint(0, 2, shape).to(dtype)
            return (torch.randn(shape) * self.one_of(0.02, 1, 1e30)).to(dtype)

        if layout == 0 and len(shape) > 1:
            return fill(shape[:-2] + [shape[-1], shape[-2]]).transpose(-1, -2)
        if layout == 1 and shape:
            return fill([*shape[:-1], 2 * shape[-1]])[..., ::2]
        if layout == 2 and shape:
            return fill([1, *shape[1:]]).expand(shape)
        if layout == 3 and shape:
            return fill([shape[0] + 1, *shape[1:]])[1:]
        return fill(shape)

    def bytes(self, tensor):
        return tensor.contiguous().reshape(-1).view(self.torch.uint8)

    def same(self, found, wanted):
        """Fails unless two tensors are equal to the bit."""
        assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found.dtype, found.shape, wanted.dtype, wanted.shape)
        assert self.torch.equal(self.bytes(found), self.bytes(wanted)), "other bits"

    def damaged(self, data):
        """Returns packed bytes with a change."""
        torch, dice = self.torch, self.dice
        data, way = data.clone(), dice.randrange(6)
        at = dice.randrange(max(data.numel(), 1)) if dice.random() < 0.5 else dice.randrange(128)
        if way < 3 and at < data.numel():
            data[at] ^= 1 << dice.randrange(8)
        elif way == 3:
            data = data[:at]
        elif way == 4:
            data = torch.cat([data, torch.zeros(dice.randrange(300), dtype=torch.uint8)])
        elif at + 8 <= data.numel():
            data[at : at + 8] = torch.randint(0, 256, (8,), dtype=torch.uint8)
        return torch.stack([data, data], 1)[:, 0] if dice.random() < 0.2 else data

    def codec(self, dtype):
        return self.mostly(self.one_of(*self.buddy.torch.layout.codecs_for(dtype)), "bf16:300", "bf16:-1", "zeros", "", "bpc:1", "fp32", "rank32")

    def target(self):
        return self.mostly(self.one_of("1x", "4/3x", "2x", "4x", "16x"), "3x", "", "0x", "4/3")

    # Each of the following makes one call.

    def pack_and_unpack(self):
        torch, dice = self.torch, self.dice
        x = self.tensor()
        codec, target, row = self.codec(x.dtype), self.target(), self.mostly(0, 1, 2, 7, -1, 1 << 33)
        sectors = self.mostly(4 * x.numel(), 0, 1, -1, 1 << 32)
        self.about = ["pack", x.dtype, x.shape, x.stride(), codec, target, row, sectors]
        packed = torch.ops.buddy.pack(x, codec, target, row, sectors)
        shape = self.mostly(list(x.shape), [x.numel() + 1], [], [-1], [3, 5])
        if dice.random() < 0.3:
            changed = self.damaged(packed)
            self.about += ["damaged", shape]
            found = torch.ops.buddy.unpack(changed, codec, target, row, shape, x.dtype)
            assert found.dtype == x.dtype and list(found.shape) == shape
            if len(changed) != len(packed) or not torch.equal(changed, packed):
                return
        else:
            self.about += [shape]
            found = torch.ops.buddy.unpack(packed, codec, target, row, shape, x.dtype)
        if found.numel() == x.numel():
            self.same(found.reshape(x.shape), x)

    def pack_by_survey(self):
        x = self.tensor()
        codec, target = self.one_of(None, self.codec(x.dtype)), self.one_of(None, self.target())
        matrix, most = self.mostly(False, True), self.mostly(0.1, -1, 2.0, float("nan"))
        self.about = ["survey", x.dtype, x.shape, x.stride(), codec, target, matrix, most]
        packed = self.buddy.torch.pack(x, codec=codec, target=target, matrix=matrix, most_overflow=most)
        self.same(self.buddy.torch.unpack(packed), x)

    def read(self):
        torch = self.torch
        changed = self.mostly(self.damaged(self.sealed), self.sealed)
        shape = self.mostly([64, 128], [128, 64], [64], [1 << 40, 1 << 40])
        dtype = self.mostly(torch.bfloat16, torch.float32, torch.uint8)
        self.about = ["read", changed.shape, changed.stride(), shape, dtype]
        packed = self.buddy.torch.PackedTensor.read(changed, shape, dtype)
        assert torch.equal(changed, self.sealed), "damaged bytes were accepted"
        self.same(packed.unpack().reshape(-1).view(torch.bfloat16).view(64, 128), self.matrix)

    def load(self):
        torch, bt = self.torch, self.buddy.torch
        layer = bt.PackedLinear(128, 64)
        data = self.one_of(self.sealed, self.damaged(self.sealed), self.tensor(), bt.pack_weight(self.matrix).data)
        self.about = ["load", data.dtype, data.shape, data.stride()]
        layer.load_state_dict({"weight": data})
        if torch.equal(data, self.sealed) or torch.equal(data, bt.pack_weight(self.matrix).data):
            self.same(layer.weight.detach().clone(), self.matrix)
        else:
            # A plain matrix is packed; packed bytes that differ must not be accepted.
            assert data.dtype != torch.uint8, "damaged bytes were accepted"

    def linear(self):
        torch, dice = self.torch, self.dice
        outputs, inputs = self.one_of(1, 16, 48, 100), self.one_of(64, 128, 192)
        weight = self.tensor([outputs, inputs], torch.bfloat16)
        packed = self.buddy.torch.pack_weight(weight)
        # PyTorch's sums depend on strides, even of a dimension of one.
        weight = weight.clone(memory_format=torch.contiguous_format)
        lead = self.mostly([dice.randrange(5)], [], [2, 3], [0])
        x = self.tensor([*lead, self.mostly(inputs, 64, 100)], self.mostly(torch.bfloat16, torch.float32, torch.float16, torch.int32, torch.float64))
        bias = self.mostly(None, self.tensor([outputs], x.dtype), self.tensor([outputs + 1], x.dtype), self.tensor())
        scratch = self.mostly(None, torch.zeros(1024, dtype=torch.uint8), self.tensor())
        data = self.mostly(packed.data, self.damaged(packed.data), self.tensor())
        said = [self.mostly(outputs, -1, outputs + 64, 1 << 40), self.mostly(inputs, 64, 0, -64)]
        self.about = ["linear", x.dtype, x.shape, x.stride(), data.shape, data.dtype, outputs, inputs, said]
        exact = self.one_of(True, False)
        found = torch.ops.buddy.linear(x, data, bias, scratch, packed.codec, *said, exact)
        if data.dtype == torch.uint8 and torch.equal(data, packed.data) and said == [outputs, inputs]:
            self.same(found, torch.nn.functional.linear(x, weight.to(x.dtype), bias))
        else:
            assert list(found.shape) == [*x.shape[:-1], said[0]] and found.dtype == x.dtype

    def embedding(self):
        torch, dice = self.torch, self.dice
        rows, columns = self.one_of(1, 16, 100), self.one_of(64, 128)
        weight = self.tensor([rows, columns], torch.bfloat16)
        packed = self.buddy.torch.pack_weight(weight)
        ids = torch.randint(0, rows, self.one_of((), (3,), (2, 5), (0,)))
        ids = self.mostly(ids, ids + rows, ids - 1, ids + (1 << 32), ids.float(), ids.bool(), ids.int(), ids.to(torch.int16))
        said = [self.mostly(rows, rows + 1000, 0, -1), self.mostly(columns, 64, 65)]
        self.about = ["embedding", ids.dtype, ids.tolist(), rows, columns, said]
        found = torch.ops.buddy.embedding(ids, packed.data, packed.codec, *said)
        if said == [rows, columns]:
            self.same(found, torch.nn.functional.embedding(ids, weight))
        else:
            assert found.shape == (*ids.shape, said[1]), dice

    def native_call(self):
        """Native functions with spans of random lengths."""
        torch, native, span, dice = self.torch, self.native, self.ops.span, self.dice
        x = self.tensor()
        if not self.ops.is_dense(x):
            x = x.contiguous()
        device = self.mostly(CPU, NO_GPU)
        format = self.codec(x.dtype), self.target(), self.mostly(0, 1, 3, -1, 1 << 40)
        room = torch.zeros(self.one_of(0, 100, 128, 4096, 1 << 20), dtype=torch.uint8)
        data, to = span(self.mostly(x, self.sealed, self.damaged(self.sealed).contiguous())), span(room)
        sizes = self.one_of((128, 256, 256), (0, 0, 0), (128, 1 << 63, 5), (16384, 16768, 16640))
        numbers = self.dice.choices([0, 1, 64, 128, 1 << 31, 1 << 62], k=5)
        small = [min(one, 128) for one in numbers]
        calls = {
            "pack": lambda: native.pack(device, format, data, to, 0, self.one_of(None, span(torch.zeros(64, dtype=torch.uint8)))),
            "unpack": lambda: native.unpack(device, format, data, to, self.one_of(None, span(self.sealed))),
            "pack_pages": lambda: native.pack_pages(device, format, data, to, sizes),
            "unpack_pages": lambda: native.unpack_pages(device, format, data, to, sizes),
            "packed_bytes": lambda: native.packed_bytes(format, *numbers[:2]),
            "parse_header": lambda: native.parse_header(data),
            "check_packed": lambda: native.check_packed(data),
            "survey": lambda: native.survey(device, [(data, format[0], self.one_of(None, to))]),
            "train": lambda: native.train(device, format[0], data),
            "gather": lambda: native.gather(device, format, (data, numbers[0]), span(torch.zeros(7, dtype=torch.int32)), to),
            "linear": lambda: native.linear(device, format, (data, numbers[0]), to, None, to, to, None, False),
            "linear_scratch_bytes": lambda: native.linear_scratch_bytes(device, format, *numbers[:2]),
            "linear_counter_bytes": lambda: native.linear_counter_bytes(device, format, *numbers[:2]),
            "linear_load": lambda: native.linear_load(device, [(numbers[0], numbers[1], True)], numbers),
            "experts_scratch_bytes": lambda: native.experts_scratch_bytes(device, *small[:2]),
            "kv_bytes": lambda: native.kv_bytes(device, tuple(small), 2),
            "kv_clear": lambda: native.kv_clear(device, (tuple(small), data, data, data)),
            "kv_read": lambda: native.kv_read(device, (tuple(small), data, data, data), (0, 0, 0), [data] * 4),
            "decode_swiglu": lambda: native.decode_swiglu(device, data, to, 3),
            "norm_relu": lambda: native.norm_relu(device, data, to, [data] * 4),
            "norm_relu_supports": lambda: native.norm_relu_supports(numbers[0]),
            "activation_forward": lambda: native.activation_forward(device, format, self.one_of("gelu", "x"), data, to, to, 0),
            "LinearPlan": lambda: native.LinearPlan(device[0], format[0], *numbers[:3]),
            "Span": lambda: native.Span(x, numbers[0] - 1, numbers[1]),
        }
        name = dice.choice(list(calls))
        self.about = [name, device, format, x.dtype, x.shape, len(room), sizes, numbers]
        calls[name]()

    def analysis(self):
        native, dice = self.native, self.dice
        x = self.tensor().contiguous()
        dtype = self.mostly(self.one_of("bf16", "f32", "u8", "i64", "c64"), "", "f7", "bool")
        shape = self.mostly([x.nbytes], [], [1 << 63, 1 << 63], list(x.shape))
        threshold = self.mostly(0.3, -1.0, 2.0, float("nan"), float("inf"))
        self.about = ["analysis", x.dtype, x.shape, dtype, shape, threshold]
        record = native.analyze_memory([("x", dtype, shape, self.ops.span(x))], threshold)
        assert json.loads(record)["data"]["arrays"][0]["bytes"] == x.nbytes
        text = record if dice.random() < 0.3 else record.replace(*self.one_of(("0", "18446744073709551615"), ("128", "-1"), ("[", "[["), ("bpc", "x")))
        assert native.analysis_text(text) and native.analysis_html(text)

    def sparse(self):
        import numpy

        dice = self.dice
        rows, columns = self.one_of(0, 1, 7, 40), self.one_of(1, 64, 300)
        counts = [dice.randrange(min(columns, 64) + 1) for _ in range(rows)]
        indptr = numpy.cumsum([0, *counts])
        indices = numpy.array([j for count in counts for j in sorted(dice.sample(range(columns), count))], self.one_of(numpy.int32, numpy.int64))
        dtype = self.mostly(self.one_of(numpy.float32, numpy.float64), numpy.float16, numpy.int32)
        data = (numpy.random.default_rng(dice.randrange(1 << 30)).standard_normal(len(indices)) * 8).astype(dtype)
        valid = (indptr.copy(), indices.copy(), data.copy())
        change = self.mostly(0, 1, 2, 3, 4, 5)
        if change == 1 and len(indices):
            indices[dice.randrange(len(indices))] = self.one_of(-1, columns, (1 << 31) - 1)
        elif change == 2:
            indptr[dice.randrange(len(indptr))] = self.one_of(-1, len(indices) + 1, (1 << 62))
        elif change == 3:
            data = data[1:]
        elif change == 4:
            indptr = indptr[:-1]
        shape = (self.mostly(rows, rows + 1), self.mostly(columns, columns + 1, 0, 1 << 33)) if change == 5 else (rows, columns)
        x = numpy.random.default_rng(1).standard_normal(self.mostly((columns,), (columns, 3), (columns, 0), (columns + 1,), (columns, 9)))
        x = self.mostly(x.astype(dtype), x[..., ::-1], x.astype(numpy.complex64))
        self.about = ["sparse", shape, data.dtype, indices.dtype, change, x.shape, x.dtype, len(indices)]
        matrix = self.buddy.sparse.csr((data, indices, indptr), shape)
        plain = matrix.arrays()
        for found, wanted in zip(plain, (data, indices, indptr)):
            assert (found == wanted).all() and len(found) == len(wanted), "other arrays"
        if all(len(a) == len(b) and (a == b).all() for a, b in zip((indptr, indices, data), valid)) and shape == (rows, columns):
            found = matrix @ x
            wide = x.astype(dtype).reshape(columns, -1)
            wanted = numpy.zeros((rows, wide.shape[1]), dtype)
            for i in range(rows):
                for k in range(indptr[i], indptr[i + 1]):
                    wanted[i] += data[k] * wide[indices[k]]
            assert found.tobytes() == wanted.reshape(rows, *x.shape[1:]).tobytes(), "another product"
        else:
            matrix @ x

    def pages(self):
        torch, kv = self.torch, self.buddy.kv
        page = self.mostly(1 << 12, 128, 0, 100, 640)
        order = self.mostly(None, (1, 16, 4), (0, 1, 1), (1, 1 << 40, 1))
        self.about = ["pages", page, order]
        format = kv.PageFormat(page, reserve=self.mostly(1 / 128, 0, 1, 2), window=self.mostly(117, 0, 240, 241), order=order)
        pages = self.tensor([self.dice.randrange(4), self.mostly(page // 2, 64)], torch.bfloat16)
        self.about += [pages.shape, pages.stride(), format]
        slots = kv.pack_pages(pages, format)
        if self.dice.random() < 0.5:
            changed = slots.clone().flatten()
            if changed.numel():
                changed[self.dice.randrange(changed.numel())] ^= 1 << self.dice.randrange(8)
            slots = self.mostly(changed.view(slots.shape), slots[:, 1:], slots[:, :-128])
            self.about += ["damaged", slots.shape]
        found = kv.unpack_pages(slots, format)
        self.same(found, self.bytes(pages).view(len(pages), -1))


KINDS = [Calls.pack_and_unpack, Calls.pack_by_survey, Calls.read, Calls.load, Calls.linear, Calls.embedding, Calls.native_call, Calls.analysis,
         Calls.sparse, Calls.pages]


def main(calls, seed, first=0):
    with tempfile.TemporaryDirectory() as folder:
        made = Calls(seed, pathlib.Path(folder))
        counts = collections.defaultdict(collections.Counter)
        for number in range(first, first + calls):
            kind = KINDS[number % len(KINDS)]
            # Each call can be made alone: its number is part of the seed.
            made.dice.seed(f"{seed} {number}")
            made.torch.manual_seed(number)
            made.about = []
            try:
                kind(made)
                outcome = "right"
            except ERRORS:
                outcome = "errors"
            except BaseException:
                print(f"call {number} of seed {seed}, {kind.__name__}: {made.about}", flush=True)
                raise
            counts[kind.__name__][outcome] += 1
        print(json.dumps(counts))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
