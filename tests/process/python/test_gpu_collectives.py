"""fairway.Communicator on GPU memory and streams, on a driver that stands in for CUDA's where the build has one."""

import os
import unittest

import ranks

PRELUDE = (
    ranks.PRELUDE
    + """
import signal
import numpy as np
from standin_gpu import Gpu
gpu = Gpu(int(os.environ["RANK"]))
def array(values, name="<f4"):
    values = np.asarray(values)
    return gpu.part(gpu.allocate(values.nbytes, values.tobytes()), 0, values.nbytes, name, values.itemsize)
def seen(memory, dtype="f4"):
    return np.frombuffer(gpu.read(memory), dtype)
def together(**options):
    group = joined(transports=["shm", "cuda"], **options)
    try:
        group.use_gpu(group.rank)
    except fairway.Unsupported as error:
        if "nvcc" not in str(error): raise
        print("skip", error)
        sys.exit(0)
    return group
"""
)


@unittest.skipUnless(os.environ.get("FAIRWAY_CUDA_DRIVER"), "FAIRWAY_CUDA_DRIVER names no driver that stands in for CUDA's")
class GpuCollectives(unittest.TestCase):
    def run_ranks(self, script, size, **options):
        said = ranks.run(self, script, size, {"FAIRWAY_STANDIN_DEVICES": "4"}, prelude=PRELUDE, **options)
        if said[0].startswith("skip"):
            self.skipTest(said[0])
        return said

    def test_every_operation_gives_what_numpy_computes(self):
        self.run_ranks(
            """
            group = together()
            stream = gpu.stream()
            me, size = group.rank, group.size
            mine = [np.arange(12, dtype=np.float32) + 100 * rank for rank in range(size)]
            total = sum(mine)
            x = array(mine[me])
            expect(group.all_reduce(x, stream=stream) is x)
            out = array(np.zeros(12, np.float32))
            group.all_reduce(array(mine[me]), out, "max", stream=stream)
            gpu.synchronize(stream)
            np.testing.assert_array_equal(seen(x), total)
            np.testing.assert_array_equal(seen(out), mine[-1])
            group.broadcast(x if me else out, 0, stream=stream)
            every = array(np.zeros(12 * size, np.float32))
            group.all_gather(array(mine[me]), every, stream=stream)
            part = array(np.zeros(12 // size, np.float32))
            group.reduce_scatter(array(mine[me]), part, stream=stream)
            dealt = array(np.zeros(12, np.float32))
            group.all_to_all(array(mine[me]), dealt, stream=stream)
            group.barrier(stream=stream)
            gpu.synchronize(stream)
            group.stream_status()
            block = slice(12 // size * me, 12 // size * (me + 1))
            np.testing.assert_array_equal(seen(x) if me else seen(out), mine[-1])
            np.testing.assert_array_equal(seen(every), np.concatenate(mine))
            np.testing.assert_array_equal(seen(part), total[block])
            np.testing.assert_array_equal(seen(dealt), np.concatenate([one[block] for one in mine]))
            truths = array(np.array([me == 0, True, False]), "|b1")
            group.all_reduce(truths, op="min", stream=stream)
            waves = array(np.full(3, 1 + 2j, "c8"), "<c8")
            group.all_reduce(waves, stream=stream)
            gpu.synchronize(stream)
            np.testing.assert_array_equal(seen(truths, "?"), [False, True, False])
            np.testing.assert_array_equal(seen(waves, "c8"), np.full(3, size * (1 + 2j)))
            # The hosts go on beside, in order.
            later = group.all_reduce(np.ones(3), wait=False)
            group.all_reduce(x, stream=stream)
            np.testing.assert_array_equal(later.wait(), np.full(3, size))
            gpu.synchronize(stream)
            group.close()
            """,
            3,
        )

    def test_what_makes_no_sense_is_refused_and_the_group_goes_on(self):
        self.run_ranks(
            """
            group = together()
            stream = gpu.stream()
            x = array(np.ones(4, np.float32))
            for kind, words, call in (
                (fairway.Unsupported, "stream=", lambda: group.all_reduce(x)),
                (fairway.InvalidArgument, "input: it is not memory", lambda: group.all_reduce(np.ones(4), stream=stream)),
                (fairway.InvalidArgument, "default stream", lambda: group.all_reduce(x, stream=0)),
                (TypeError, "cudaStream_t", lambda: group.all_reduce(x, stream="a stream")),
                (fairway.InvalidArgument, "out is needed", lambda: group.all_gather(x, stream=stream)),
                (fairway.InvalidArgument, "algorithm", lambda: group.all_reduce(x, algorithm="ring", stream=stream)),
                (fairway.InvalidArgument, "uses GPU", lambda: group.use_gpu(3)),
            ):
                try:
                    call()
                except kind as error:
                    expect(words in str(error), str(error))
                else:
                    raise AssertionError(words)
            group.all_reduce(x, stream=stream)
            gpu.synchronize(stream)
            expect(seen(x)[0] == 2)
            group.close()
            """,
            2,
        )

    def test_without_use_gpu_the_refusal_says_so_and_more_ranks_than_gpus_can_go_on_without(self):
        self.run_ranks(
            """
            group = joined(transports=["shm", "cuda"])
            try:
                group.barrier(stream=gpu.stream())
                raise AssertionError("no error")
            except fairway.InvalidArgument as error:
                expect("use_gpu" in str(error), error)
            try:
                group.use_gpu(99 if group.rank == 1 else 0)
                raise AssertionError("no error")
            except fairway.Error as error:
                expect("no GPU 99" in str(error) and group.failure is None, error)
            expect(group.all_reduce(np.ones(2))[0] == 2)
            group.close()
            """,
            2,
        )

    def test_a_rank_that_dies_ends_kernels_long_before_their_deadline(self):
        """Nobody calls anything meanwhile: the communicator's own thread lets its engine hear of it."""
        self.run_ranks(
            """
            group = together(timeout=600.0)
            stream = gpu.stream()
            x = array(np.ones(4, np.float32))
            group.all_reduce(x, stream=stream)
            gpu.synchronize(stream)
            group.barrier()
            if group.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            group.all_reduce(x, stream=stream)
            gpu.synchronize(stream)
            try:
                group.stream_status()
                raise AssertionError("no error")
            except fairway.Error as error:
                expect(error.rank == 1 and error.operation is not None, error)
            expect(group.failure.rank == 1)
            rest = group.shrink()
            rest.use_gpu(int(os.environ["RANK"]))
            y = array(np.ones(4, np.float32))
            rest.all_reduce(y, stream=stream)
            gpu.synchronize(stream)
            expect(seen(y)[0] == 2, seen(y))
            rest.close()
            """,
            3,
            killed=(1,),
            timeout=120,
        )


if __name__ == "__main__":
    unittest.main()
