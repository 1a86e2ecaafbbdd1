"""What NIXL's examples use of `nixl._utils`: memory by address."""

import ctypes

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


def malloc_passthru(size):
    address = _libc.malloc(size)
    if not address:
        raise MemoryError(f"malloc({size})")
    return address


def free_passthru(address):
    _libc.free(address)


def ba_buf(address, size):
    ctypes.memset(address, 0xBA, size)


def verify_transfer(address1, address2, size):
    if ctypes.string_at(address1, size) != ctypes.string_at(address2, size):
        raise AssertionError(f"the {size} bytes at {address1:#x} and {address2:#x} differ")
