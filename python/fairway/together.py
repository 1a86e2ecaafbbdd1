"""Operations that are noted, and not started at once: of Communicator.run_all() and explain()."""

from . import errors
from .collectives import OPERATIONS, Collectives


class _Noted(Collectives):
    """Collectives whose operations are noted in place of being started."""

    def __init__(self, communicator):
        self._group = communicator._group
        self.calls, self.keep = [], []

    def _begin(self, call, keep, result, wait):
        if not wait:
            raise errors._of("invalid_argument", "wait=False is run_all's: a call of a group does not end by itself")
        self.calls.append(call)
        self.keep.append((keep, result))
        return result

    def _enqueue(self, stream, result, call):
        raise errors._of("unsupported", "stream=: this is for host memory; on a stream, calls that follow each other do not wait for the host")


def noted(communicator, operation, arrays, options):
    """The call that a method of that name would start."""
    if operation not in OPERATIONS:
        raise errors._of("invalid_argument", f"{operation!r} is no operation: {', '.join(OPERATIONS)}")
    notes = _Noted(communicator)
    getattr(notes, operation)(*arrays, **options)
    return notes.calls[0]


class Calls:
    """What Communicator.run_all() gives: the methods of collectives, whose operations run at the end of the `with`."""

    def __init__(self, communicator, wait):
        self._communicator, self._wait, self._noted = communicator, bool(wait), _Noted(communicator)
        self.operation = None

    def __getattr__(self, name):
        if name not in OPERATIONS:
            raise AttributeError(f"a group has {', '.join(OPERATIONS)}, not {name}")
        if self._noted is None:
            raise errors._of("invalid_argument", "the group has run: what comes later is another")
        return getattr(self._noted, name)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        noted, self._noted = self._noted, None
        if kind is not None:
            return
        self.operation = self._communicator._group.run_all(noted.calls, noted.keep, None, not self._wait)
        if self._wait:
            self.operation.wait()
