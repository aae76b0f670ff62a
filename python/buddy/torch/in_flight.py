"""Packing that a GPU has not confirmed yet.

The GPU writes the number of overflowing sectors to a word of pinned memory, which the host polls.
The host blocks only if more plain memory is in flight than allowed.
"""

import ctypes
import threading
import time
from collections import deque

import torch

# Value of a status word that the GPU has not written.
PENDING = -1
# Limit for `settle` that waits for everything.
WAIT_ALL = -1
# Status words that are allocated at once.
WORDS = 1024


class StatusWord(ctypes.c_int32):
    """A word of pinned memory and its address."""

    address = 0


def is_async(device):
    """Returns whether packing may be unfinished when the call returns."""
    return device.type != "cpu"


class InFlight:
    """The unconfirmed packing of a model."""

    def __init__(self):
        self.lock, self.pending, self.bytes = threading.Lock(), deque(), 0
        self._words, self._memory = [], []

    def take_word(self):
        """Returns a free status word."""
        with self.lock:
            if not self._words:
                memory = torch.empty(WORDS, dtype=torch.int32, pin_memory=torch.cuda.is_available())
                self._memory.append(memory)
                for address in range(memory.data_ptr(), memory.data_ptr() + 4 * WORDS, 4):
                    status = StatusWord.from_address(address)
                    status.address = address
                    self._words.append(status)
            status = self._words.pop()
        status.value = PENDING
        return status

    def add(self, status, size, device, done, *arguments):
        """Registers ``size`` bytes of plain memory as in flight until ``done(sectors, *arguments)``
        is called."""
        with self.lock:
            self.pending.append((status, size, device, done, arguments))
            self.bytes += size

    def settle(self, limit):
        """Handles finished packing, and waits while more than ``limit`` bytes are in flight."""
        with self.lock:
            while self.pending:
                status, size, device, done, arguments = self.pending[0]
                if status.value == PENDING:
                    if self.bytes <= limit:
                        break
                    wait_for(status, device)
                self.pending.popleft()
                self.bytes -= size
                done(status.value, *arguments)
                self._words.append(status)


def wait_for(status, device):
    """Waits until the GPU has written a status word. Errors of the GPU are raised."""
    start = time.perf_counter()
    while status.value == PENDING:
        time.sleep(2e-5)
        if time.perf_counter() - start > 5:
            torch.cuda.synchronize(device)
            start = time.perf_counter()
