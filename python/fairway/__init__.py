"""Fairway moves bytes between the memories of processes, hosts and GPUs along the fastest path that the hardware has.

One process offers memory and tells the other its address:

    import fairway, numpy
    engine = fairway.Engine()
    inbox = numpy.zeros((1024, 1024), 'float32')
    region = engine.register(inbox, 'w')            # peers may write; keep it
    engine.publish('inbox', region)
    print(engine.address)
    print(engine.wait_notification())               # once every byte is there

The other writes into it:

    import fairway, numpy, sys
    engine = fairway.Engine()
    remote = engine.connect(sys.argv[1]).lookup('inbox')
    engine.write(numpy.ones((1024, 1024), 'float32'), remote, notify=7).wait()

help(fairway.Engine) lists the verbs, help(fairway.Engine.write) the options of a transfer, help(fairway.errors) what can go wrong, each
an exception of its own (fairway.PeerDead and so on, all of them fairway.Error). docs/python.md is the tour.

Any thread may call any function or method: engines, regions, transfers, queues and communicators may be shared. Operations of a
communicator run one after the other, in the order of the calls, which is the same on every rank. An object of fairway.aio belongs
to its event loop.
"""

import atexit as _atexit
import sys as _sys
import weakref as _weakref

from . import errors
from ._fairway import (
    Cancelled as CancelOutcome,
    CounterSpace,
    Engine as _Engine,
    ExplainedLink,
    Explanation,
    Loopback,
    Mapping,
    Notification,
    Notify,
    Operation,
    Peer,
    PeerEvent,
    Probed,
    Queue,
    Region,
    RegionSlice,
    RemoteArray,
    RemoteRegion,
    Request,
    Transfer,
    __version__,
    counter,
    event,
    signal,
)
from ._fairway import _threads_return
from .communicator import Communicator, _all_in, _live as _communicators
from .errors import *  # noqa: F403
from .errors import Error, Forked
from .window import Window

_open = _weakref.WeakSet()


class Engine(_Engine):
    __doc__ = _Engine.__doc__

    def __init__(self, **options):
        super().__init__(**options)
        _open.add(self)

    __init__.__doc__ = _Engine.__init__.__doc__

    @classmethod
    def _of(cls, opened):
        """Of an engine that the library has opened."""
        engine = cls.__new__(cls)
        _Engine.__init__(engine, _opened=opened)
        _open.add(engine)
        return engine

    def close(self):
        if self.closed:
            return
        fd = self.fileno()
        for group in [group for group in _all_in(_communicators) if group.engine is self]:
            group._owns_engine = False
            group.abort() if group._group.busy else group.close()  # its memory goes with the engine
        super().close()
        if "fairway.aio" in _sys.modules:
            _sys.modules["fairway.aio"]._engine_closed(fd)

    close.__doc__ = _Engine.close.__doc__

    def __exit__(self, *_):
        self.close()


@_atexit.register
def _close_all():
    """Engines are closed while Python still stands, so that peers hear of it, and what waits in them comes back."""
    for engine in _all_in(_open):
        try:
            engine.close()
        except Forked:
            pass
        except Exception:  # one that does not close keeps no other open
            _sys.excepthook(*_sys.exc_info())
    _threads_return(5.0)


# Without the exceptions, but for the one of them all: help() would show nothing else on its first pages.
__all__ = [name for name in dir() if not name.startswith("_") and (name == "Error" or name not in vars(errors))]
