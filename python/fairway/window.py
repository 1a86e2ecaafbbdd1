"""GPU memory that ranks show to each other; fairway.Communicator.register_window() makes Windows."""

from . import errors


class Window:
    """GPU memory that the ranks of a communicator read where it is, from Communicator.register_window().

    The communicator keeps the array until deregister() or its own end, also when the Window is dropped. `with` ends it;
    after an exception it stays until the communicator's end, since the other ranks may not come.
    """

    def __init__(self, communicator, number, nbytes):
        self._communicator, self._number, self._nbytes, self._ended = communicator, number, nbytes, False

    @property
    def number(self):
        """Which of the communicator's windows it is, from 1; the same on every rank."""
        return self._number

    @property
    def nbytes(self):
        """How many bytes this rank shows."""
        return self._nbytes

    def deregister(self):
        """Ends it, and lets go of the array. Collective: it returns once no rank reads there any more.

        Let the streams that use it end before, and launch no graph that does afterwards. Later operations go as without it.
        Raises Revoked when it has ended before. After another error the array stays until the communicator's end.
        """
        if self._ended:
            raise errors._of("revoked", f"window {self._number} was deregistered; register_window() makes another")
        self._communicator._group.deregister_window(self._number)
        self._ended = True

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if failed is None and not self._ended:
            self.deregister()

    def __repr__(self):
        state = ", deregistered" if self._ended else ", over" if self._communicator.closed else ""
        return f"<fairway.Window {self._number} of '{self._communicator.name}', {self._nbytes} bytes{state}>"
