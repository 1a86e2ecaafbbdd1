"""What the GPU side of the backend "fairway" stands on: calls that are made once, and streams of the group."""

import functools
import itertools

import torch

from ._fairway import _Call, _SideStream
from .group_memory import _element_of

_IDS = ("stream_id", "device_index", "device_type")  # by which PyTorch 2.x names a stream; 1.13 has one number
_Future = torch._C.Future


def made_call(kind, dtype, op="", factor=1.0, root=0, seconds=None, counts=()):
    """A call that has no memory yet, and how many of its elements one of the dtype is. `counts`: what all_to_allv sends and receives."""
    item = dtype.itemsize if hasattr(dtype, "itemsize") else torch.empty(0, dtype=dtype).element_size()  # 1.13 has none
    element, each = _element_of(str(dtype)[6:], item, kind, op, "tensor")
    blocks = []
    for of_ranks in counts:
        sizes = [count * each for count in of_ranks]
        blocks += [sizes, [0, *itertools.accumulate(sizes[:-1])]]
    call = _Call(kind, 0, 0, 0, element, op or "sum", factor, root, "automatic", seconds, False, False, *(blocks or ((), (), (), ())))
    return call, each


shared_call = functools.lru_cache(maxsize=128)(made_call)  # a program has few kinds of calls, and makes each of them often


def seconds_of(limit):
    seconds = 0 if limit is None else limit.total_seconds()
    return seconds if seconds > 0 else None


def current_handle(cuda):
    """A function of a GPU's index that gives the cudaStream_t of its current stream, by the shortest way that this PyTorch has."""
    by_torch = getattr(torch._C, "_cuda_getCurrentRawStream", None) if cuda is torch.cuda else None
    return by_torch or (lambda index: cuda.current_stream(index).cuda_stream)


class Side:
    """A stream of the group's: torch's, what enqueues on it, and its newest event that no graph has captured."""

    __slots__ = ("_cuda", "_gpus", "_ids", "stream", "run", "run_messages", "newest")

    def __init__(self, communicator, cuda, index):
        self._cuda, self._gpus = cuda, [torch.device("cuda", index)]
        self.stream = cuda.Stream(device=index)
        self._ids = {name: getattr(self.stream, name) for name in _IDS if hasattr(self.stream, name)}
        enqueues = _SideStream(communicator._group, index, self.stream.cuda_stream)
        self.run, self.run_messages, self.newest = enqueues.run, enqueues.run_messages, None

    def future(self, result):
        """A future of CUDA, as NCCL's: whose waiter's stream waits for what this stream has now."""
        made = _Future(self._gpus)  # its event is recorded on the current stream
        index = self._gpus[0].index
        if not self._ids or torch._C._cuda_getDevice() != index:
            with self._cuda.stream(self.stream):
                made.set_result(result)
            return made
        before = torch._C._cuda_getCurrentStream(index)  # as torch.cuda.stream() does it, which makes objects of streams
        torch._C._cuda_setStream(**self._ids)
        try:
            made.set_result(result)
        finally:
            torch._C._cuda_setStream(**dict(zip(_IDS, before)))
        return made
