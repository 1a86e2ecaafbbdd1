"""The collectives of arrays, each made into a call; who starts it, notes it or asks about it is a class of its own."""

import numbers

from . import errors
from ._fairway import _Call
from .arguments import check_text, index, listed, seconds_or_none
from .group_memory import _OPS, _element_of, _made, _Memory

OPERATIONS = ("barrier", "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "all_to_allv")


class Collectives:
    """The methods of collectives over `_group`. A class of them says what becomes of a call: _begin(call, keep, result, wait) on
    host memory, _enqueue(stream, result, call) on a stream."""

    @property
    def rank(self):
        """This process's place in the group, from 0."""
        return self._group.rank

    @property
    def size(self):
        """How many ranks there are."""
        return self._group.size

    def barrier(self, *, timeout=None, wait=True, stream=None):
        """Ends once every rank has called it."""
        return self._start("barrier", None, None, 0, "uint8", wait=wait, timeout=timeout, stream=stream)

    def all_reduce(self, array, out=None, op="sum", *, factor=1.0, algorithm="automatic", reproducible=False, timeout=None, wait=True, stream=None):
        """Combines the arrays of all ranks, element by element: 'sum', 'product', 'min', 'max', 'average' or 'premul_sum'.

        The result is in `out` at every rank, without it in `array`. Half types are combined in float32. Averages of integers
        are rounded towards zero. 'premul_sum' multiplies each rank's array by that rank's own `factor`, then sums, as
        torch.distributed's PREMUL_SUM does; of floating-point and complex dtypes. Raises InvalidArgument of
        another dtype, and of a factor with another op. `reproducible`: in the order of ranks, so the bits depend on the values
        alone, and not on the size, the algorithm or how the ranks are linked; much data takes longer.
        """
        source, target = self._pair(array, out, stream)
        return self._reducing("all_reduce", source, target, array if out is None else out, op, factor, 0, algorithm, reproducible, timeout, wait, stream)

    def reduce(
        self, array, out=None, op="sum", root=0, *, factor=1.0, algorithm="automatic", reproducible=False, local_completion=False, timeout=None, wait=True, stream=None
    ):
        """As all_reduce, with the result at `root` only, in `out` or without it in `array`; None elsewhere. `local_completion`: as in broadcast."""
        here = self.rank == index(root, "root")
        source, target = self._pair(array, out, stream) if here else (_Memory(array, "array", stream=stream), None)
        result = (array if out is None else out) if here else None
        return self._reducing("reduce", source, target, result, op, factor, root, algorithm, reproducible, timeout, wait, stream, local=local_completion)

    def broadcast(self, array, root=0, *, algorithm="automatic", local_completion=False, timeout=None, wait=True, stream=None):
        """Copies the array of `root` into that of every other rank.

        Ends once all ranks have come. With `local_completion`, the same on every rank, it ends once this rank's array has the
        values, or may be changed, as MPI's does; a rank that does not come is then named by a later operation. Not on streams.
        """
        here = self.rank == index(root, "root")
        memory = _Memory(array, "array", not here, stream)
        kind, count = memory.elements("broadcast", "", "array")
        how = {"root": root, "algorithm": algorithm, "local_completion": local_completion}
        return self._start("broadcast", memory, memory, count, kind, array, **how, timeout=timeout, wait=wait, stream=stream)

    def all_gather(self, array, out=None, *, algorithm="automatic", timeout=None, wait=True, stream=None):
        """The arrays of all ranks, in order, in `out` at every rank; without it in a new array of shape (size, ...)."""
        return self._gathering("all_gather", array, out, 0, algorithm, timeout, wait, True, stream)

    def gather(self, array, out=None, root=0, *, local_completion=False, timeout=None, wait=True, stream=None):
        """As all_gather, at `root` only; None elsewhere. `local_completion`: as in broadcast."""
        return self._gathering("gather", array, out, root, "automatic", timeout, wait, self.rank == root, stream, local=local_completion)

    def scatter(self, array, out, root=0, *, local_completion=False, timeout=None, wait=True, stream=None):
        """Block i of the array of `root` (None elsewhere) goes to rank i, into `out`; there are `size` equal blocks.

        `local_completion`: as in broadcast.
        """
        target = _Memory(out, "out", True, stream)
        source = _Memory(array, "array", stream=stream) if self.rank == root else None
        if source is not None:
            self._fits(source, target, self.size, "array", "out")
        kind, count = target.elements("scatter", "", "out")
        return self._start("scatter", source, target, count, kind, out, root=root, local_completion=local_completion, timeout=timeout, wait=wait, stream=stream)

    def reduce_scatter(self, array, out=None, op="sum", *, factor=1.0, algorithm="automatic", reproducible=False, timeout=None, wait=True, stream=None):
        """Combines the arrays of all ranks; of the result rank i gets block i of `size`, in `out` or in a new array."""
        source = _Memory(array, "array", stream=stream)
        if out is None:
            if not source.shape or source.shape[0] % self.size:
                raise errors._of("invalid_argument", f"array: its first dimension is not a multiple of {self.size} ranks; give out=")
            out = self._new(array, [source.shape[0] // self.size, *source.shape[1:]], stream)
        target = _Memory(out, "out", True, stream)
        self._fits(source, target, self.size, "array", "out")
        return self._reducing("reduce_scatter", source, target, out, op, factor, 0, algorithm, reproducible, timeout, wait, stream)

    def all_to_all(self, array, out=None, *, algorithm="automatic", timeout=None, wait=True, stream=None):
        """Block i of `array` goes to rank i; block i of `out` (or of a new array) comes from rank i. Equal blocks."""
        source = _Memory(array, "array", stream=stream)
        if out is None:
            out = self._new(array, source.shape, stream)
        target = _Memory(out, "out", True, stream)
        self._fits(source, target, 1, "array", "out")
        kind, elements = source.elements("all_to_all", "", "array")
        if elements % self.size:
            raise errors._of("invalid_argument", f"array: {elements} elements are no {self.size} equal blocks; all_to_allv takes any")
        return self._start("all_to_all", source, target, elements // self.size, kind, out, algorithm=algorithm, timeout=timeout, wait=wait, stream=stream)

    def all_to_allv(self, array, out, send_counts, receive_counts, send_offsets=None, receive_offsets=None, *, timeout=None, wait=True, stream=None):
        """all_to_all with blocks of any size: counts and offsets are elements, one for each rank; without offsets they are packed.

        send_counts[i] here is receive_counts[this rank] at rank i.
        """
        source, target = _Memory(array, "array", stream=stream), _Memory(out, "out", True, stream)
        self._fits(source, target, None, "array", "out")
        blocks = []
        kind, scale = _element_of(source.type, source.item, "all_to_allv", "", "array")
        for memory, counts, offsets, name in ((source, send_counts, send_offsets, "send"), (target, receive_counts, receive_offsets, "receive")):
            what = f"{self.size} whole numbers, one for each rank, none below 0"
            counts = [index(count, f"{name}_counts[{i}]", 1 << 62) for i, count in enumerate(listed(counts, f"{name}_counts", what))]
            if offsets is None:
                offsets = [sum(counts[:i]) for i in range(len(counts))]
            offsets = [index(offset, f"{name}_offsets[{i}]", 1 << 62) for i, offset in enumerate(listed(offsets, f"{name}_offsets", what))]
            if len(counts) != self.size or len(offsets) != self.size:
                raise errors._of("invalid_argument", f"{name}_counts and {name}_offsets are {what}, not {len(counts)} and {len(offsets)}")
            most = max((offset + count for count, offset in zip(counts, offsets) if count), default=0)
            if most * memory.item > memory.nbytes:
                raise errors._of("out_of_range", f"the {name} blocks reach element {most}, of {memory.nbytes // max(memory.item, 1)}")
            blocks += [[count * scale for count in counts], [offset * scale for offset in offsets]]
        return self._start("all_to_allv", source, target, 0, kind, out, timeout=timeout, wait=wait, blocks=blocks, stream=stream)

    # ---- how ----

    @staticmethod
    def _new(like, shape, stream):
        """The array of a result that the caller has not named."""
        return _made(like, shape, stream)

    def _pair(self, array, out, stream=None):
        source = _Memory(array, "array", out is None, stream)
        if out is None:
            return source, source
        target = _Memory(out, "out", True, stream)
        self._fits(source, target, 1, "array", "out")
        return source, target

    def _fits(self, large, small, times, large_name, small_name):
        """Same elements, and so many times as many."""
        if (large.type, large.item) != (small.type, small.item):
            raise errors._of("invalid_argument", f"{large_name} has elements of {large.type or large.item}, {small_name} of {small.type or small.item}")
        if times is not None and large.nbytes != times * small.nbytes:
            needs = f"{times} blocks of {small.nbytes} bytes as {small_name} has" if times > 1 else f"as {small_name} {small.nbytes}"
            raise errors._of("invalid_argument", f"{large_name} has {large.nbytes} bytes, and needs {needs}")

    def _reducing(self, kind, source, target, result, op, factor, root, algorithm, reproducible, timeout, wait, stream=None, local=False):
        if op not in _OPS:
            raise errors._of("invalid_argument", f"op is one of {', '.join(_OPS)}, not {op!r}")
        if not isinstance(factor, numbers.Real):
            raise errors._of("invalid_argument", f"factor is a number, not {factor!r}")
        element, count = source.elements(kind, op, "array")
        if kind == "reduce_scatter":
            count //= self.size
        how = {"op": op, "factor": float(factor), "root": root, "algorithm": algorithm, "reproducible": bool(reproducible), "local_completion": local}
        return self._start(kind, source, target, count, element, result, **how, timeout=timeout, wait=wait, stream=stream)

    def _gathering(self, kind, array, out, root, algorithm, timeout, wait, here, stream=None, local=False):
        source = _Memory(array, "array", stream=stream)
        target = None
        if here:
            if out is None:
                out = self._new(array, [self.size, *source.shape], stream)
            target = _Memory(out, "out", True, stream)
            self._fits(target, source, self.size, "out", "array")
        element, count = source.elements(kind, "", "array")
        result = out if here else None
        how = {"root": root, "algorithm": algorithm, "local_completion": local}
        return self._start(kind, source, target, count, element, result, **how, timeout=timeout, wait=wait, stream=stream)

    def _start(
        self,
        kind,
        source,
        target,
        count,
        element,
        result=None,
        *,
        op="sum",
        factor=1.0,
        root=0,
        algorithm="automatic",
        reproducible=False,
        local_completion=False,
        timeout=None,
        wait=True,
        blocks=((), (), (), ()),
        stream=None,
    ):
        root, timeout = index(root, "root"), seconds_or_none(timeout)
        check_text(algorithm, "algorithm")
        places = [0 if memory is None else memory.address for memory in (source, target)]
        how = (op, factor, root, algorithm, timeout, reproducible, bool(local_completion))
        call = _Call(kind, *places, count, element, *how, *blocks)
        if stream is not None:
            return self._enqueue(stream, result, call)
        return self._begin(call, (source, target), result, wait)
