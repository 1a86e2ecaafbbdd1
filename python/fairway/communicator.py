"""Groups of ranks that move and combine arrays together (docs/collectives.md has what holds; docs/python.md the tour)."""

import hashlib
import math
import weakref

from . import errors
from ._fairway import Engine as _Engine
from ._fairway import _Group
from .arguments import check_text, index, listed, seconds_or_none, texts
from .collectives import Collectives
from .communicator_gpu import GpuCalls
from .communicator_host import HostCalls

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


class Communicator(Collectives, HostCalls, GpuCalls):
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
