"""What a communicator has for GPU memory: its operations on streams, and by whom they go (docs/collectives.md has what holds)."""

import os

from . import cuda, errors, explained
from ._fairway import _GpuOptions, _View
from .arguments import index
from .collectives import OPERATIONS
from .group_memory import _Memory
from .window import Window


def _path(given):
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def gpu_options(*, nccl="measured", guarded=True, nccl_library="", table="", windows_from=0, meet_from=0, messages=False, graphs_in_turn=False):
    """Options of GpuCalls.use_gpu(), looked at: InvalidArgument of a value that cannot be, TypeError of a name that there is not."""
    return _GpuOptions(nccl, guarded, _path(nccl_library), _path(table), windows_from, meet_from, messages, graphs_in_turn)


class GpuCalls:
    """The part of fairway.Communicator that is about GPUs."""

    def use_gpu(self, gpu, *, nccl="measured", guarded=True, nccl_library="", table="", windows_from=0, meet_from=0, messages=False, graphs_in_turn=False):
        """Lets operations take GPU memory, among at most 8 ranks of one host: each rank calls it with its GPU's number.

        Afterwards the collectives take stream=, a stream of that GPU (torch's, CuPy's, or a cudaStream_t; not the default one), and arrays that the GPU reaches. Such a call enqueues the
        operation and gives the array at once, also while the stream captures a graph; the host does not wait, and `wait` means
        nothing. Keep the arrays until the stream has come past, and let the streams end before close(). The timeout begins
        when the GPU does.

        nccl          who does operations: 'measured', NCCL where this machine's table says that it is faster (measure_gpu());
                      'never', Fairway alone; 'always', NCCL whatever it can do. The same on every rank
        guarded       NCCL's operations keep deadlines, and ranks that do not come are found. False: they are faster and do
                      neither. The same on every rank
        nccl_library  path of libnccl.so.2; '': FAIRWAY_NCCL_LIBRARY, else the one that this process has loaded, such as torch's
        table         path of the table, of which rank 0's counts; '': one in the user's cache, for these GPUs and versions
        windows_from  how many bytes a rank gets from which on windows are read; 0: as was measured. The same on every rank
        meet_from     bytes of all blocks from which on one warp waits for the other ranks before the kernel that moves; 0: none.
                      For streams that run beside others: who waits leaves them the GPU. 3 to 5 us. The same on every rank
        messages      with room for messages on streams, 8.4 MiB of the GPU. The same on every rank
        graphs_in_turn  True: any number of graphs may be captured, not 128 with the streams. What they captured from one stream
                      is then never launched before its last launch has ended, and in the same order on every rank, as where
                      one stream launches all graphs. The same on every rank

        Returns once every rank has called it; it may wait for kernels that run. Takes 25 MiB of the GPU, with NCCL more.
        Raises Unsupported, at every rank, if one of them cannot, and InvalidArgument if nccl or guarded differ; on this rank
        alone InvalidArgument of an option that cannot be. The communicator goes on without GPUs.
        """
        options = gpu_options(nccl=nccl, guarded=guarded, nccl_library=nccl_library, table=table, windows_from=windows_from, meet_from=meet_from, messages=messages, graphs_in_turn=graphs_in_turn)
        self._group.use_gpu(index(gpu, "gpu"), options)

    def measure_gpu(self, most_bytes=64 << 20, compare=False):
        """Measures operations on streams by Fairway and by NCCL, in turns, and keeps who is faster; gives the figures as text.

        Collective, after a use_gpu() that allows NCCL. Kinds and sizes from 512 bytes to `most_bytes` (256 MiB at most) are
        measured in graphs and launched one by one; the figures are microseconds. Rank 0 writes the table (use_gpu() says
        where), which later calls of use_gpu() read: this communicator goes on as before. `compare` then measures what is
        chosen by the table, too. Returns once all is measured, after seconds to minutes, and takes twice `most_bytes` of the
        GPU meanwhile. Ctrl-C interrupts the wait, and the measuring goes on.
        Raises InvalidArgument before use_gpu() and after one with nccl='never', Unsupported where a rank has no NCCL, and why.
        """
        return self._group.measure_gpu(most_bytes, compare)

    def explain_stream(self, operation, *arrays, captured=False, **options):
        """Who would do an operation on a stream, and why, in a sentence.

            group.explain_stream("all_reduce", gradients, op="average", captured=True)

        `operation` is the name of a method that takes stream=; `arrays` and `options` are what you would give to it. `captured`:
        the stream captures a graph. Nothing is enqueued, and no result is made. An array of the host stands for one of its size
        on the GPU. Any rank may ask, at any time; operations on the host that were started before end first. The answer holds
        if the other ranks' arrays lie as this one's: where they lie in other places of windows, the operation itself fails.
        Raises InvalidArgument of a name that no operation has, with the names of those that there are; of arrays and options
        what the method itself raises.
        """
        if operation not in OPERATIONS:
            raise errors._of("invalid_argument", f"{operation!r} is no operation: {', '.join(OPERATIONS)} run on streams")
        return explained.ask(self, operation, arrays, captured, options)

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

    def stream_messages(self, messages, stream, *, timeout=None):
        """Messages to and from other ranks on a stream, after use_gpu(): ("send", array, rank) or ("receive", array, rank) each.

            group.stream_messages([("send", activations, next), ("receive", gradients, next)], stream)

        Only the ranks that they are between call it. All messages of a call travel at once, so two ranks may send to each other;
        several to one rank, or from it, go one after the other. Both name arrays of the same size. The streams on which two ranks
        have messages in one direction, and the graphs, are numbered by their first, in the same order on both. Graphs are up to six;
        with more than six streams all these messages are in the same order on both. Keep the arrays until the stream has come past.
        What goes wrong is told by stream_status(), as of operations.
        """
        group = []
        for what, array, rank in messages:
            if what not in ("send", "receive"):
                raise errors._of("invalid_argument", f"a message is ('send', array, rank) or ('receive', array, rank), not {what!r}")
            memory = _Memory(array, "array", what == "receive", stream)
            group.append((memory.address, memory.nbytes, rank, what == "receive"))
        self._group.stream_messages(group, timeout, cuda._handle(stream))

    def stream_status(self):
        """Raises how an operation on a stream has failed, as far as this rank knows: call it once the stream has ended.

        The memory of an operation that failed is undefined, later ones end at once, and the communicator is over.
        """
        self._group.stream_status()

    # ---- how ----

    def _enqueue(self, stream, result, call):
        self._group.stream_run(call, cuda._handle(stream))
        return result
