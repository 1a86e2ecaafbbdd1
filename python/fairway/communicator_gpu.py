"""What a communicator has for GPU memory and streams (docs/collectives.md has what holds)."""

from . import errors
from ._fairway import _View
from .group_memory import _Memory
from .window import Window


class GpuCalls:
    """The part of fairway.Communicator that is about GPUs."""

    def use_gpu(self, gpu):
        """Lets operations take GPU memory, among at most 8 ranks of one host: each rank calls it with its GPU's number.

        Afterwards barrier, all_reduce, broadcast, all_gather, reduce_scatter and all_to_all take stream=, a stream of that GPU
        (torch's, CuPy's, or a cudaStream_t; not the default one), and arrays that the GPU reaches. Such a call enqueues one
        kernel and gives the array at once, also while the stream captures a graph; the host does not wait, and `wait` means
        nothing. Keep the arrays until the stream has come past, and let the streams end before close(). The timeout begins
        when the GPU does.
        Takes 15.5 MiB of the GPU. Raises Unsupported, at every rank, if one of them cannot; the communicator goes on without GPUs.
        """
        self._group.use_gpu(gpu)

    def register_window(self, memory):
        """Shows an array of this rank's GPU to the other ranks, which read it where it is; gives its Window. Collective, after use_gpu().

        `memory` is torch's, CuPy's or anything with DLPack or __cuda_array_interface__, contiguous, of any shape and dtype.
        Long operations with stream= are faster where their arrays are windows or parts of them, the same part on every rank
        (docs/collectives.md). all_reduce needs its `out` in one, too; broadcast the array of every rank. Others go as before.
        The communicator keeps the array until Window.deregister(), or until its own end if the Window is dropped. Without close()
        that end is when neither it nor one of its Operations and Windows is left. The call returns once every rank can read. What
        one rank's engine or GPU refuses raises at every rank, and the communicator goes on.
        Raises InvalidArgument before use_gpu(), and on this rank alone of memory on the host or that is not contiguous.
        """
        shown = _Memory(memory, "memory", stream="any")
        if not (shown.keep.on_gpu if isinstance(shown.keep, _View) else shown.keep.device.type == "cuda"):
            raise errors._of("invalid_argument", "memory is on the host, and a window is a GPU's: make the array on the GPU of use_gpu(), or copy it there")
        return Window(self, self._group.register_window(shown.address, shown.nbytes, shown.keep), shown.nbytes)

    def stream_status(self):
        """Raises how an operation on a stream has failed, as far as this rank knows: call it once the stream has ended.

        The memory of an operation that failed is undefined, later ones end at once, and the communicator is over.
        """
        self._group.stream_status()
