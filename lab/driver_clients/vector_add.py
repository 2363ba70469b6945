"""A vector addition, the work that tests give to a GPU."""

import array
import ctypes as c

from lab.driver_clients.cuda import Cuda
from lab.driver_clients.ptx_modules import ptx_module

VECTOR_ADD = ptx_module("vector_add")


def add_vectors(cuda: Cuda, length: int, claimed: int | None = None) -> bool:
    """Add two vectors and say whether the sums are right; `claimed` is what the kernel is told."""
    function = cuda.function(cuda.module(VECTOR_ADD), "vector_add")
    a = array.array("f", range(length))
    b = array.array("f", (2 * i + 0.5 for i in range(length)))
    pointers = [cuda.upload(a.tobytes()), cuda.upload(b.tobytes()), cuda.allocate(4 * length)]
    arguments = [*(c.c_uint64(pointer) for pointer in pointers), c.c_int(claimed or length)]
    cuda.launch(function, [((claimed or length) + 255) // 256], [256], *arguments)
    result = array.array("f", cuda.download(pointers[2], 4 * length))
    return result == array.array("f", (x + y for x, y in zip(a, b, strict=True)))
