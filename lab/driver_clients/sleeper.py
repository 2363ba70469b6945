"""Kernels that take GPU time and no processor's."""

import ctypes as c

from lab.driver_clients.cuda import Cuda
from lab.driver_clients.ptx_modules import ptx_module

SLEEP = ptx_module("sleep")
MAX_SLEEP = 1_000_000


class Sleeper:
    """A kernel that sleeps in the current context; each launch says for how many nanoseconds."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._function = cuda.function(cuda.module(SLEEP), "sleep")

    def start(self, nanoseconds: int) -> None:
        """Launch it and do not wait."""
        times, rest = divmod(nanoseconds, MAX_SLEEP)
        self._cuda.start(self._function, [1], [1], c.c_uint32(times), c.c_uint32(rest))
