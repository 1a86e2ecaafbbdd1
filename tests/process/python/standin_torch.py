"""torch.cuda and its tensors, as far as the backend "fairway" looks at them, on a driver that stands in for CUDA's."""

import contextlib
import ctypes
import types

import numpy as np
import torch

_TYPES = {"float32": torch.float32, "int32": torch.int32, "bool": torch.bool}


class Event:
    def __init__(self, gpu):
        self._gpu, self._event = gpu, ctypes.c_void_p()
        gpu.here("cuEventCreate", ctypes.byref(self._event), ctypes.c_uint(2))

    def record(self, stream):
        self._gpu.here("cuEventRecord", self._event, ctypes.c_void_p(stream.cuda_stream))

    def query(self):
        result = self._gpu.driver.cuEventQuery(self._event)
        assert result in (0, 600), result
        return result == 0


class Stream:
    def __init__(self, gpu):
        self._gpu, self.cuda_stream = gpu, gpu.stream()

    def wait_event(self, event):
        self._gpu.here("cuStreamWaitEvent", ctypes.c_void_p(self.cuda_stream), event._event, ctypes.c_uint(0))

    def wait_stream(self, other):
        event = Event(self._gpu)
        event.record(other)
        self.wait_event(event)

    def synchronize(self):
        self._gpu.synchronize(self.cuda_stream)


class Cuda:
    """In the place of torch.cuda. `shown`: what names the GPU."""

    def __init__(self, gpu, index, shown=None):
        self.gpu, self.index, self.shown = gpu, index, shown or f"GPU {index}"
        self.current, self.capturing = Stream(gpu), False

    def current_device(self):
        return self.index

    def get_device_properties(self, index):
        return types.SimpleNamespace(uuid=self.shown)

    def is_current_stream_capturing(self):
        return self.capturing

    def current_stream(self, device):
        return self.current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def Stream(self, device):
        return Stream(self.gpu)

    def Event(self):
        return Event(self.gpu)


class Tensor:
    """Of a GPU; contiguous."""

    layout, is_cuda = torch.strided, True

    def __init__(self, cuda, values):
        values = np.asarray(values)
        self._cuda, self._numpy = cuda, values.dtype
        self.dtype, self.shape = _TYPES[str(values.dtype)], values.shape
        self.device = types.SimpleNamespace(type="cuda", index=cuda.index)
        self.memory = cuda.gpu.allocate(values.nbytes, values.tobytes())
        self.recorded = []
        self.__cuda_array_interface__ = {"shape": values.shape, "typestr": values.dtype.str, "data": (self.memory.address, False), "version": 3}

    def get_device(self):
        return self.device.index

    def detach(self):
        return self

    def is_contiguous(self):
        return True

    def is_conj(self):
        return False

    is_neg = is_conj

    def numel(self):
        return int(np.prod(self.shape))

    def element_size(self):
        return self._numpy.itemsize

    def dim(self):
        return len(self.shape)

    def data_ptr(self):
        return self.memory.address

    def cpu(self):
        return torch.from_numpy(self.numpy().copy())

    def copy_(self, host):
        self._cuda.gpu.write(self.memory, host.numpy().tobytes())

    def record_stream(self, stream):
        self.recorded.append(stream)

    def numpy(self):
        return np.frombuffer(self._cuda.gpu.read(self.memory), self._numpy).reshape(self.shape)
