"""Allocate memory on device 0, say how it went, hold it until the input ends."""

import ctypes
import sys

cuda = ctypes.CDLL(sys.argv[1])
bytes_wanted = ctypes.c_size_t(int(sys.argv[2]) << 20)
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
result = cuda.cuInit(0)
result = result or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
result = result or cuda.cuMemAlloc_v2(ctypes.byref(pointer), bytes_wanted)
print(result, flush=True)
for line in sys.stdin:
    if line.strip() == "free":
        print(cuda.cuMemFree_v2(pointer), flush=True)
    elif line.strip() == "init":
        print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)), flush=True)
