"""CUDA streams on which transfers wait, through torch's events or the driver's own; imported when first needed."""

import ctypes
import os
import sys

from .errors import SystemError_, Unsupported


class _Recorded:
    """An event recorded on a stream. Kept until the transfer that starts after it has completed."""

    def __init__(self, event, handle, keep):
        self.event = event  # cudaEvent_t
        self.handle = handle  # cudaStream_t
        self._keep = keep


class _DriverEvent:
    """By libcuda, for streams of programs without torch."""

    def __init__(self, stream):
        self.event = ctypes.c_void_p()
        try:
            self.driver = ctypes.CDLL(os.environ.get("FAIRWAY_CUDA_DRIVER") or "libcuda.so.1")
        except OSError as error:
            raise Unsupported(f"stream= needs NVIDIA's driver, and this machine has none: {error}") from None
        context = ctypes.c_void_p()
        self._call("cuStreamGetCtx", ctypes.c_void_p(stream), ctypes.byref(context))
        self._call("cuCtxPushCurrent_v2", context)
        try:
            self._call("cuEventCreate", ctypes.byref(self.event), ctypes.c_uint(2))  # without timing
            self._call("cuEventRecord", self.event, ctypes.c_void_p(stream))
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(context))

    def _call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise SystemError_(f"{name} says {result}: is the stream alive, and of this process?")

    def __del__(self):
        if self.event.value:
            self.driver.cuEventDestroy_v2(self.event)


def _handle(stream):
    """cudaStream_t as a number; of None, torch's current stream."""
    if stream is None and "torch" in sys.modules:
        stream = sys.modules["torch"].cuda.current_stream()
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "cuda_stream"):  # torch
        return stream.cuda_stream
    if hasattr(stream, "__cuda_stream__"):  # the protocol of cuda.core and others: (version, handle)
        return stream.__cuda_stream__()[1]
    if hasattr(stream, "ptr"):  # CuPy
        return stream.ptr
    raise TypeError(f"stream is a cudaStream_t, torch's, CuPy's or has __cuda_stream__, not {type(stream).__name__}")


_has_gpus = False  # torch has said so; it takes a while to say, and it stays true


def _torch_has_gpus(torch):
    global _has_gpus
    _has_gpus = _has_gpus or torch.cuda.is_available()
    return _has_gpus


def _synchronize(gpu):
    """Waits until what torch's current stream of that GPU has by now is done: a message starts after no stream by itself."""
    torch = sys.modules.get("torch")
    if torch is not None and _torch_has_gpus(torch):
        torch.cuda.current_stream(gpu).synchronize()


def _record(stream, gpu):
    """An event on `stream`, or on torch's current stream of that GPU when it is None; None: there is nothing to wait for."""
    torch = sys.modules.get("torch")
    if stream is None:
        if torch is None or not _torch_has_gpus(torch):
            return None
        stream = torch.cuda.current_stream(gpu)
    if torch is not None and isinstance(stream, torch.cuda.Stream):
        event = torch.cuda.Event()
        event.record(stream)
        return _Recorded(event.cuda_event, stream.cuda_stream, (event, stream))
    handle = _handle(stream)
    event = _DriverEvent(handle)
    return _Recorded(event.event.value, handle, (event, stream))
