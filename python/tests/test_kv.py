"""Packed pages of keys and values, and the pool in host memory, on the CPU."""

import pathlib
import random
import runpy

import pytest

torch = pytest.importorskip("torch")

from buddy.kv import HostPool, PageError, PageFormat, checksums, fits, pack_apart, pack_pages, transfer, unpack_apart, unpack_pages

PAGE = 1 << 14
FORMAT = PageFormat(PAGE)


def bits(count, low=-(1 << 15), high=1 << 15):
    return torch.randint(low, high, (count, PAGE // 2), dtype=torch.int16).view(torch.bfloat16)


def with_special_values(count):
    pages = torch.randn(count, PAGE // 2).bfloat16()
    for at, value in enumerate([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, 3e38]):
        pages[:, at::97] = value
    return pages


PAGES = {"normal": lambda n: torch.randn(n, PAGE // 2).bfloat16(), "zeros": lambda n: torch.zeros(n, PAGE // 2).bfloat16(),
         "random bits": bits, "special values": with_special_values, "nan": lambda n: bits(n, 0x7F81, 0x7FFF),
         "small": lambda n: (1e-30 * torch.randn(n, PAGE // 2)).bfloat16()}


def same(found, pages):
    return torch.equal(found.view(torch.int16).view(len(pages), -1), pages.contiguous().view(torch.int16).view(len(pages), -1))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_comes_back_bit_for_bit(name):
    pages, pool = PAGES[name](5), HostPool(FORMAT, 9)
    ids = [8, 0, 1, 2, 5]
    pool.put(ids, pages)
    assert same(pool.get(ids), pages)
    assert same(pool.get([2, 8]), pages[[3, 0]]), "in any order"


def test_overflow_of_a_few_entries_fits_into_the_slot_and_more_lies_beside_it():
    room = FORMAT.sectors
    pages, pool = torch.randn(2, FORMAT.entries, 64).bfloat16(), HostPool(FORMAT, 2)
    pages[0, :room] = bits(1).view(-1, 64)[:room]
    pages[1, : room + 1] = bits(1).view(-1, 64)[: room + 1]
    slots = pack_pages(pages, FORMAT)
    assert fits(slots).tolist() == [True, False]
    assert same(unpack_pages(slots[:1], FORMAT), pages[:1])
    with pytest.raises(PageError, match="slot 1 .*1 of 2"):
        unpack_pages(slots, FORMAT)
    pool.put([0, 1], pages)
    assert list(pool.overflow) == [1] and pool.overflow[1].numel() == 32 * (room + 1)
    assert pool.nbytes == 2 * FORMAT.slot_bytes + 32 * (room + 1)
    assert same(pool.get([0, 1]), pages)


def test_one_page_of_any_content_is_packed_apart():
    page = bits(1)[0]
    slot, overflow = pack_apart(page, FORMAT)
    assert overflow.numel() == FORMAT.overflow_bytes, "every entry overflows"
    found = torch.empty(PAGE, dtype=torch.uint8)
    assert not unpack_apart(slot, overflow, FORMAT, found) and same(found[None], page[None])
    overflow[77] ^= 1
    assert unpack_apart(slot, overflow, FORMAT, found)


def test_slots_take_three_quarters():
    assert PageFormat(1 << 20).slot_bytes / (1 << 20) < 0.7575 < 1 / 1.32
    assert PageFormat(1 << 20, reserve=0).slot_bytes / (1 << 20) < 0.755


@pytest.mark.parametrize("format", [{"page_bytes": 100}, {"page_bytes": 0}, {"page_bytes": 128, "window": 241}, {"page_bytes": 128, "reserve": 2}])
def test_formats_that_cannot_be_are_errors(format):
    with pytest.raises(ValueError, match="needed"):
        PageFormat(**format)


def outlier_channels(count, blocks=2, tokens=16, row=128):
    """Keys with a large channel, in blocks of tokens, as rows of pages."""
    keys = torch.randn(count, blocks, 2, tokens, row)
    keys[..., ::16] = 60 + torch.randn(count, blocks, 2, tokens, row // 16)
    return keys.bfloat16().view(count, -1)


def test_training_finds_window_and_order_of_the_first_pages():
    small, large = (HostPool(FORMAT, 4) for _ in range(2))
    small.put([0], PAGES["small"](1))
    large.put([0], 1000 * PAGES["normal"](1))
    assert small.format.window < 60 and large.format.window > 120 and small.format.order is None
    pages, orders = outlier_channels(3), [(2, 16, 128), (1, 32, 128)]
    plain, ordered = HostPool(FORMAT, 3), HostPool(FORMAT, 3, orders=orders)
    for pool in [plain, ordered]:
        pool.put([0, 1, 2], pages)
        assert same(pool.get([0, 1, 2]), pages)
    assert ordered.format.order == (2, 16, 128) and not ordered.overflow and plain.overflow
    window = ordered.format.window
    ordered.put([1], PAGES["small"](1))
    assert ordered.format.window == window, "pages that are stored need theirs"


def test_an_entry_holds_a_channel_of_the_tokens_of_all_blocks():
    format = PageFormat(PAGE, order=(2, 16, 128))
    tokens = torch.arange(2 * 2 * 16).view(2, 2, 16, 1).expand(2, 2, 16, 128).contiguous().short()
    values = format.ordered(tokens.view(1, -1).view(torch.uint8)).view(torch.int16).view(2, 128, 32)
    assert (values[0] == torch.cat([torch.arange(16), torch.arange(32, 48)])).all()
    back = torch.empty(1, PAGE, dtype=torch.uint8)
    format.restore(format.ordered(tokens.view(1, -1).view(torch.uint8)), back)
    assert torch.equal(back.view(torch.int16).view(tokens.shape), tokens)
    with pytest.raises(ValueError, match="whole matrices"):
        PageFormat(PAGE, order=(3, 16, 128))


def test_wrong_sizes_and_slots_are_errors():
    pool = HostPool(FORMAT, 3)
    with pytest.raises(ValueError, match="16384"):
        pool.put([0], torch.zeros(1, 8))
    with pytest.raises(ValueError, match="2 pages for 1 slots"):
        pool.put([0], bits(2))
    for slot in [-1, 3]:
        with pytest.raises(IndexError, match=f"slot {slot} of 3"):
            pool.put([slot], bits(1))
    pool.put([1], bits(1))
    pool.drop([1])
    for slot in [0, 1]:
        with pytest.raises(KeyError, match=f"no page in slot {slot}"):
            pool.get([slot])


def test_each_changed_bit_of_a_page_changes_its_checksum():
    page = torch.randint(0, 256, (1, 512), dtype=torch.uint8)
    changed = page.repeat(4096, 1)
    for bit in range(4096):
        changed[bit, bit // 8] ^= 1 << bit % 8
    assert (checksums(changed) != checksums(page)).all()
    signs = page.repeat(2, 1)
    signs[1, 3::4] ^= 0x80
    swapped = page.view(128, 4).flip(0).reshape(1, 512)
    assert len({int(one) for one in [*checksums(signs), *checksums(swapped)]}) == 3


def test_no_damage_of_a_slot_gives_a_wrong_page():
    pages, pool = PAGES["normal"](2), HostPool(FORMAT, 2)
    pages[1, :4096] = bits(1)[0, :4096]
    pool.put([0, 1], pages)
    assert list(pool.overflow) == [1]
    found = {"error": 0, "same": 0}
    draw = random.Random(1)
    for trial in range(300):
        slot = trial % 2
        memory = pool.overflow[1] if trial % 10 == 1 else pool.memory[slot]
        at, bit = draw.randrange(memory.numel()), 1 << draw.randrange(8)
        memory[at] ^= bit
        try:
            assert same(pool.get([slot]), pages[slot : slot + 1]), "a bit that no entry uses"
            found["same"] += 1
        except PageError as error:
            assert f"slot {slot}" in str(error)
            found["error"] += 1
        memory[at] ^= bit
    assert found["error"] > 200 and same(pool.get([0, 1]), pages)


def test_one_damaged_page_of_many_is_named():
    pages, pool = bits(3, 0, 0x4000), HostPool(FORMAT, 3)
    pool.put([0, 1, 2], pages)
    pool.memory[1, 4000] ^= 1
    with pytest.raises(PageError, match=r"slot 1 .*1 of 3"):
        pool.get([2, 1, 0])


def test_damage_is_found_although_staging_memory_holds_the_page():
    pool = HostPool(FORMAT, 1)
    pool.put([0], PAGES["normal"](1))
    pool.get([0])
    pool.memory[0, 0] ^= 1
    with pytest.raises(PageError):
        pool.get([0])


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_pages_survive_eviction_and_reuse(monkeypatch, batch):
    monkeypatch.setattr(transfer, "BATCH_BYTES", batch * PAGE)
    draw, pool, held = random.Random(batch), HostPool(FORMAT, 24), {}
    for _ in range(60):
        ids = draw.sample(range(24), draw.randrange(1, 12))
        pages = torch.stack([PAGES[draw.choice(list(PAGES))](1)[0] for _ in ids])
        pool.put(ids, pages)
        held.update(zip(ids, pages))
        gone = draw.sample(sorted(held), len(held) // 6)
        pool.drop(gone)
        for slot in gone:
            del held[slot]
        assert pool.held == set(held) and set(pool.overflow) <= set(held)
        order = draw.sample(sorted(held), len(held))
        assert same(pool.get(order), torch.stack([held[slot] for slot in order]))


def test_transfers_in_flight_take_pages_from_and_to_anywhere():
    cache, found, pool = PAGES["normal"](10), torch.zeros(10, PAGE // 2).bfloat16(), HostPool(FORMAT, 4)
    cache[7] = bits(1)[0]
    blocks = torch.tensor([3, 7, 1, 0])
    rows, into = (one.view(torch.uint8).view(10, PAGE) for one in (cache, found))
    stored = pool.mover("cpu", "store").store([0, 1, 2, 3], lambda at, to: to.copy_(rows[blocks[at : at + len(to)]]))
    assert stored.done() and not pool.held
    stored.wait()
    assert pool.held == {0, 1, 2, 3} and list(pool.overflow) == [1]
    loaded = pool.mover("cpu", "load").load([0, 1, 2, 3], lambda at, pages: into.index_copy_(0, blocks[at : at + len(pages)], pages))
    loaded.wait()
    assert same(found[blocks], cache[blocks]) and not found[[2, 4, 5, 6, 8, 9]].any()


def test_the_example_keeps_more_chunks_than_fit_plain(capsys):
    runpy.run_path(str(pathlib.Path(__file__).parents[2] / "examples/kv_store.py"), run_name="__main__")
    assert capsys.readouterr().out == "7 chunks where 6 fit plain: [3, 4, 5, 6, 7, 8, 9]\n"
