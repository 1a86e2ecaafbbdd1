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

help(fairway.Engine) lists the verbs, help(fairway.Engine.write) the options of a transfer, docs/python.md is the tour. Errors are
exceptions: fairway.PeerDead and so on.
"""

import atexit as _atexit
import sys as _sys
import weakref as _weakref

from . import errors
from ._fairway import (
    Cancelled as CancelOutcome,
    Engine as _Engine,
    ExplainedLink,
    Explanation,
    Loopback,
    Mapping,
    Notification,
    Notify,
    Peer,
    PeerEvent,
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
from .errors import *  # noqa: F403
from .errors import Error, Forked

_open = _weakref.WeakSet()


class Engine(_Engine):
    __doc__ = _Engine.__doc__

    def __init__(self, **options):
        super().__init__(**options)
        _open.add(self)

    __init__.__doc__ = _Engine.__init__.__doc__

    def close(self):
        if self.closed:
            return
        fd = self.fileno()
        super().close()
        if "fairway.aio" in _sys.modules:
            _sys.modules["fairway.aio"]._engine_closed(fd)

    close.__doc__ = _Engine.close.__doc__

    def __exit__(self, *_):
        self.close()


@_atexit.register
def _close_all():
    """Engines are closed while Python still stands, so that peers hear of it."""
    for engine in list(_open):
        try:
            engine.close()
        except Forked:
            pass


__all__ = [name for name in dir() if not name.startswith("_")]
