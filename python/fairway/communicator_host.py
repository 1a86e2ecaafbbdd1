"""What a communicator has for host memory beside its operations: groups of them, and which algorithm each takes."""

from . import together


class HostCalls:
    """The part of fairway.Communicator that is about groups of operations, and about algorithms."""

    def run_all(self, *, wait=True):
        """Several operations as one group, which runs at the end of the `with`.

            with group.run_all() as calls:
                for gradient in gradients:
                    calls.all_reduce(gradient, op="average")

        `calls` has the methods of collectives, with the arguments that they have here but for wait= and stream=; each gives the
        array that will have the result. The same as one after the other, but all_reduces beside each other, of one dtype and op,
        travel as one as long as they have 64 KiB together. Every rank makes the same group. If the block raises, nothing runs.
        The end of the block waits and raises what went wrong; with wait=False `calls.operation` is an Operation by then.
        """
        return together.Calls(self, wait)

    def measure(self, most_bytes=64 << 20, compare=False):
        """Times each algorithm for operations on host memory, in turns, and keeps who is the fastest; gives the figures as text.

        Collective. Sizes from 8 bytes to `most_bytes` (64 MiB at most) are measured; the figures are microseconds. Rank 0 writes
        the table into the user's cache, for this machine, this number of ranks and these links; this communicator, and later
        ones of that shape, take what it says. `compare` then measures what they choose, too. Returns once all is measured, after
        seconds to minutes, and takes four times `most_bytes` meanwhile. Ctrl-C interrupts the wait, and the measuring goes on.
        Raises Unsupported of one rank.
        """
        return self._group.measure(most_bytes, compare)

    def explain(self, operation, *arrays, **options):
        """By which algorithm an operation on host memory would go, and why, in a sentence.

            group.explain("all_reduce", gradients, op="average")

        `operation` is the name of a method of this class, `arrays` and `options` what you would give to it. Nothing is started.
        Any rank may ask, at any time; operations that were started before end first.
        """
        return self._group.explain(together.noted(self, operation, arrays, options))
