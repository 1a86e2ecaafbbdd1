"""Who would do an operation on a stream, for Communicator.explain_stream()."""

from . import cuda
from .collectives import Collectives
from .group_memory import _Memory

_ANY = "any stream"


class _Explained(Collectives):
    """Collectives whose operations on streams end in the explanation in place of being enqueued."""

    def __init__(self, communicator, captured):
        self._group, self._captured = communicator._group, bool(captured)

    def _enqueue(self, stream, result, call):
        if stream is not _ANY:
            cuda._handle(stream)  # what is no stream is refused
        return self._group.explain_stream(call, self._captured)

    @staticmethod
    def _new(like, shape, stream):
        return _Memory(like, "array", stream=stream).elsewhere(shape)


def ask(communicator, operation, arrays, captured, options):
    if options.get("stream") is None:
        options = {**options, "stream": _ANY}
    return getattr(_Explained(communicator, captured), operation)(*arrays, **options)
