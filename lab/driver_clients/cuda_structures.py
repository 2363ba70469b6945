"""Structures of libcuda, for tests and for the processes that they start, which need no more."""

import ctypes as c


class Properties(c.Structure):
    """CUmemAllocationProp and CUmemPoolProps, with room for what follows."""

    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("place", c.c_int), ("device", c.c_int)]
    _fields_ += [("rest", c.c_ubyte * 80)]


class Shape(c.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t)]
    _fields_ += [("format", c.c_int), ("channels", c.c_uint), ("flags", c.c_uint)]


class Configuration(c.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", c.c_uint * 3), ("block", c.c_uint * 3), ("shared", c.c_uint)]
    _fields_ += [("stream", c.c_void_p), ("attributes", c.c_void_p), ("count", c.c_uint)]
