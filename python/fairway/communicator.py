"""Groups of ranks that move and combine arrays together (docs/collectives.md has what holds; docs/python.md the tour)."""

import hashlib
import math
import numbers
import weakref

from . import errors
from ._fairway import Engine as _Engine
from ._fairway import _Call, _Group
from .arguments import check_text, index, listed, seconds_or_none, texts
from .communicator_gpu import GpuCalls
from .communicator_host import HostCalls
from .group_memory import _OPS, _element_of, _Memory

_ADDRESS_BYTES = 256

_live = weakref.WeakSet()


def _all_in(alive):
    """The members of a WeakSet, to which other threads may be adding."""
    while True:
        try:
            return list(alive)
        except RuntimeError:
            pass  # one was added meanwhile


def _named(failed, what, rank, address):
    error = type(failed)(f"{failed.code}: {what} rank {rank} ({address}): {failed.cause}", cause=failed.cause, peer=failed.peer, link=failed.link)
    error.rank = rank
    return error


class Communicator(HostCalls, GpuCalls):
    """A group of ranks, each with an engine, that move and combine host memory together.

        group = fairway.Communicator(engine, rank, addresses)   # the address of each rank's engine, by rank
        group = fairway.Communicator.join()                     # what the launcher says (help(fairway.launch))
        group.all_reduce(gradients, op='average')

    Every rank makes the same calls in the same order. Arrays are NumPy's, torch's on the CPU, or anything with DLPack or the
    buffer protocol; contiguous. A call waits and gives the array with the result, or with wait=False gives an Operation at
    once, which makes progress by itself; Operations end in the order of their start. A rank that dies, stays away or calls
    something else is an exception at every rank, with `rank`, `operation` and `phase`; afterwards the communicator is over
    and shrink() makes one of those that live. Threads may share it; what they start runs in turn.
    """

    def __init__(self, engine, rank, addresses, *, name="world", timeout=30.0, slot_bytes=0, first_immediate=0):
        if not isinstance(engine, _Engine):
            raise errors._of("invalid_argument", f"engine is a fairway.Engine, not {engine!r}")
        addresses, rank = texts(addresses, "addresses", "one for each rank"), index(rank, "rank")
        check_text(name, "name")
        slot_bytes, first_immediate = index(slot_bytes, "slot_bytes", 1 << 32), index(first_immediate, "first_immediate", 1 << 32)
        if not isinstance(timeout, (int, float)) or not timeout > 0:
            raise errors._of("invalid_argument", f"timeout is seconds, more than 0, not {timeout!r}")
        self._adopt(_Group(engine, rank, addresses, name, float(timeout), slot_bytes, first_immediate), engine, addresses, name, float(timeout))

    def _adopt(self, group, engine, addresses, name, timeout):
        self._group, self._engine, self._addresses = group, engine, addresses
        self._name, self._timeout, self._peers, self._regroups, self._owns_engine = name, timeout, {}, 0, False
        _live.add(self)

    @classmethod
    def join(cls, *, name="world", timeout=30.0, environment=None, **engine_options):
        """The communicator of all ranks of this job, over an engine of its own; the launcher's environment says who they are.

        Knows torchrun, mpirun (Open MPI, MPICH), srun, Kubernetes' indexed jobs, and RANK, WORLD_SIZE, MASTER_ADDR. On one host
        nothing has to be set; on several FAIRWAY_JOB_KEY, the same for all. abort() and close() end the engine too.
        """
        from . import launch

        return launch.join(cls, name, timeout, environment, engine_options)

    @property
    def rank(self):
        """This process's place in the group, from 0."""
        return self._group.rank

    @property
    def size(self):
        """How many ranks there are."""
        return self._group.size

    @property
    def name(self):
        return self._name

    @property
    def engine(self):
        """The engine that it stands on."""
        return self._engine

    @property
    def addresses(self):
        """The addresses of the engines, by rank."""
        return tuple(self._addresses)

    @property
    def failure(self):
        """The exception that says why the communicator is over, or None."""
        return self._group.failure

    # ---- collectives ----

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

    # ---- messages ----

    def send(self, array, to, tag=0, *, timeout=None, wait=True):
        """Sends a contiguous array to rank `to`, apart from the collectives; with wait=False gives a Transfer."""
        return self._message("send", array, to, tag, timeout, wait)

    def receive(self, array, source, tag=0, *, timeout=None, wait=True):
        """Receives the next message of (source, tag) into an array of at least its size; gives its bytes."""
        return self._message("receive", array, source, tag, timeout, wait)

    # ---- the group ----

    def split(self, color, key=0):
        """A communicator of the ranks with the same color, in the order of (key, rank); None with a color below 0. Collective."""
        color, key = (index(given, what, begin=-(1 << 31)) for given, what in ((color, "color"), (key, "key")))
        self._regroups += 1
        return self._child(self._group.split(color, key), f"{self._name}/{self._regroups}.{color}")

    def shrink(self, without=()):
        """A communicator of the ranks that live, all of which call it, also after an error.

        `without`: ranks that live and are left out, such as one that froze; those must not call it.
        """
        without = [index(rank, f"without[{i}]") for i, rank in enumerate(listed(without, "without", "ranks"))]
        self._regroups += 1
        return self._child(self._group.shrink(without), f"{self._name}#{self._regroups}")

    def grow(self, added, *, name, timeout=None, slot_bytes=0, first_immediate=0):
        """A communicator with more ranks: these in the same order, and behind them the engines at the addresses `added`.

        Collective, with the same arguments. Each of those engines makes Communicator(engine, rank, addresses, name=name, ...)
        with the addresses of all, in that order, and the same timeout and slot_bytes; nobody has used that name. This one stays.
        """
        added, seconds = texts(added, "added", "the addresses of engines"), self._timeout if timeout is None else timeout
        check_text(name, "name")
        slot_bytes, first_immediate = index(slot_bytes, "slot_bytes", 1 << 32), index(first_immediate, "first_immediate", 1 << 32)
        if not isinstance(seconds, (int, float)) or not seconds > 0:
            raise errors._of("invalid_argument", f"timeout is seconds, more than 0, not {seconds!r}")
        grown = Communicator.__new__(type(self))
        made = self._group.grow(added, name, float(seconds), slot_bytes, first_immediate)
        grown._adopt(made, self._engine, [*self._addresses, *added], name, float(seconds))
        grown._parent = self  # an engine of its own ends with it
        return grown

    def close(self):
        """Ends it once what was started has ended. Other ranks that still need this one get an error."""
        self._group.close()
        if self._owns_engine:
            self._engine.close()

    def abort(self):
        """Ends it at once: what runs fails here and at the other ranks, whose shrink() leaves this one out. From any thread."""
        self._group.abort()
        self.close()

    @property
    def closed(self):
        return self._group.closed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = ", closed" if self.closed else ", over" if self.failure else ""
        return f"<fairway.Communicator '{self._name}', rank {self.rank} of {self.size}{state}>"

    # ---- how ----

    def _child(self, group, name):
        if group is None:
            return None
        child = Communicator.__new__(type(self))
        child._adopt(group, self._engine, [], name, self._timeout)
        child._parent = self  # an engine of its own ends with it
        own = bytearray(self._engine.address.encode().ljust(_ADDRESS_BYTES, b"\0"))
        every = bytearray(_ADDRESS_BYTES * child.size)
        child._gathering("all_gather", own, every, 0, "automatic", None, True, True)
        child._addresses = [bytes(every[i : i + _ADDRESS_BYTES]).rstrip(b"\0").decode() for i in range(0, len(every), _ADDRESS_BYTES)]
        return child

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

    def _begin(self, call, keep, result, wait):
        operation = self._group.start(call, keep, result, not wait)
        return operation.wait() if wait else operation

    def _message(self, what, array, rank, tag, timeout, wait):
        if not isinstance(rank, int) or not 0 <= rank < self.size or rank == self.rank:
            raise errors._of("invalid_argument", f"{what}: rank {rank!r} is not another rank of 0 to {self.size - 1}")
        tag, timeout = index(tag, "tag", 1 << 32), seconds_or_none(timeout)
        address = self._addresses[rank]
        direction = "to" if what == "send" else "from"
        seconds = self._timeout if timeout is None else timeout
        space = int.from_bytes(hashlib.blake2b(self._name.encode(), digest_size=4).digest(), "little")
        transfer = None
        try:
            if rank not in self._peers:
                self._peers[rank] = self._engine.connect(address, seconds)
            peer = self._peers[rank]
            transfer = getattr(peer, what)(space << 32 | tag, array, deadline=None if math.isinf(seconds) else seconds)
            return transfer.wait(None if math.isinf(seconds) else seconds + 1) if wait else transfer
        except errors.TimedOut as failed:
            if transfer is not None:
                transfer.cancel()
            raise _named(failed, f"{what} {direction}", rank, address) from None
        except errors.Error as failed:
            raise _named(failed, f"{what} {direction}", rank, address) from None
