"""GPU memory and streams by the driver that the engine uses (FAIRWAY_CUDA_DRIVER: the stand-in of tests/support/cuda)."""

import ctypes
import os


class Array:
    """Bytes, or elements of a type, of a GPU."""

    def __init__(self, address, nbytes, typestr="|u1", size=1):
        self.address, self.nbytes = address, nbytes
        self.__cuda_array_interface__ = {"shape": (nbytes // size,), "typestr": typestr, "data": (address, False), "version": 3}


class Gpu:
    def __init__(self, device):
        self.driver = ctypes.CDLL(os.environ["FAIRWAY_CUDA_DRIVER"])
        self.call("cuInit", ctypes.c_uint(0))
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), ctypes.c_int(device))

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        assert result == 0, f"{name} says {result}"

    def here(self, name, *arguments):
        self.call("cuCtxPushCurrent_v2", self.context)
        try:
            self.call(name, *arguments)
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def allocate(self, nbytes, content=None):
        address = ctypes.c_uint64()
        self.here("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        made = Array(address.value, nbytes)
        self.write(made, bytes(nbytes) if content is None else content)
        return made

    def part(self, whole, first, nbytes, typestr="|u1", size=1):
        return Array(whole.address + first, nbytes, typestr, size)

    def write(self, array, content):
        source = ctypes.create_string_buffer(content, len(content))
        self.here("cuMemcpy", ctypes.c_uint64(array.address), ctypes.c_uint64(ctypes.addressof(source)), ctypes.c_size_t(len(content)))

    def read(self, array):
        into = ctypes.create_string_buffer(array.nbytes)
        self.here("cuMemcpy", ctypes.c_uint64(ctypes.addressof(into)), ctypes.c_uint64(array.address), ctypes.c_size_t(array.nbytes))
        return into.raw

    def stream(self):
        made = ctypes.c_void_p()
        self.here("cuStreamCreateWithPriority", ctypes.byref(made), ctypes.c_uint(1), ctypes.c_int(0))
        return made.value

    def synchronize(self, stream):
        self.here("cuStreamSynchronize", ctypes.c_void_p(stream))

    def hold(self, stream):
        """What comes after in the stream waits until the answer's value is 1."""
        gate = ctypes.c_uint32(0)
        self.here("cuStreamWaitValue32_v2", ctypes.c_void_p(stream), ctypes.c_uint64(ctypes.addressof(gate)), ctypes.c_uint32(1), ctypes.c_uint(0))
        return gate

    def copy(self, stream, into, source, nbytes):
        self.here("cuMemcpyAsync", ctypes.c_uint64(into.address), ctypes.c_uint64(source.address), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))
