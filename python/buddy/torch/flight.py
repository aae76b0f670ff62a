"""What a GPU has been asked to pack and has not answered for: whether there was room for what overflows.

It answers in a word of pinned memory, which the host reads when it comes by; so no one waits, unless more plain memory than may be
is kept for want of an answer.
"""

import ctypes
import threading
import time
from collections import deque

import torch

# What stands where a GPU will say how many sectors overflow.
UNTOLD = -1
# Fewer bytes than may wait ever: all answers are waited for.
NONE = -1
# Words that are had at once.
WORDS = 1024


class Told(ctypes.c_int32):
    """A word of pinned memory, and its address."""

    address = 0


def waits(device):
    """Whether packing is only begun when the call returns."""
    return device.type != "cpu"


class Flight:
    """The packed memory of a model that waits for an answer."""

    def __init__(self):
        self.lock, self.pending, self.bytes = threading.Lock(), deque(), 0
        self._words, self._memory = [], []

    def word(self):
        """A word for an answer."""
        with self.lock:
            if not self._words:
                memory = torch.empty(WORDS, dtype=torch.int32, pin_memory=torch.cuda.is_available())
                self._memory.append(memory)
                for address in range(memory.data_ptr(), memory.data_ptr() + 4 * WORDS, 4):
                    told = Told.from_address(address)
                    told.address = address
                    self._words.append(told)
            told = self._words.pop()
        told.value = UNTOLD
        return told

    def add(self, told, size, device, answered, *arguments):
        """Packing has begun; so many bytes of plain memory wait until ``answered(sectors, *arguments)`` has been called."""
        with self.lock:
            self.pending.append((told, size, device, answered, arguments))
            self.bytes += size

    def settle(self, most):
        """Takes the answers that are there, and waits for some while more bytes than these wait."""
        with self.lock:
            while self.pending:
                told, size, device, answered, arguments = self.pending[0]
                if told.value == UNTOLD:
                    if self.bytes <= most:
                        break
                    wait_for(told, device)
                self.pending.popleft()
                self.bytes -= size
                answered(told.value, *arguments)
                self._words.append(told)


def wait_for(told, device):
    """Waits until the GPU has said something; what went wrong there is raised."""
    start = time.perf_counter()
    while told.value == UNTOLD:
        time.sleep(2e-5)
        if time.perf_counter() - start > 5:
            torch.cuda.synchronize(device)
            start = time.perf_counter()
