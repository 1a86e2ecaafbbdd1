"""fairway.Communicator: arrays that have DLPack and nothing else, the same bits in any way, and more ranks than before."""

import concurrent.futures
import os
import socket
import tempfile
import threading
import unittest
from unittest import mock

import fairway
import numpy as np

import ranks


class Tensor:
    """An array as another library's: DLPack, and nothing by which its memory could be seen otherwise."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, stream=None):
        return self._values.__dlpack__()

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class Arguments(unittest.TestCase):
    def test_what_cannot_be_is_named(self):
        with fairway.Engine() as engine, fairway.Communicator(engine, 0, [engine.address]) as group:
            x, mine = np.ones(4), [engine.address]
            for words, call in (
                ("engine is a fairway.Engine, not 5", lambda: fairway.Communicator(5, 0, mine)),
                ("rank is a whole number", lambda: fairway.Communicator(engine, "a", mine)),
                ("addresses is a list of str.*not '127", lambda: fairway.Communicator(engine, 0, engine.address)),
                (r"addresses\[0\] is a str, not 5", lambda: fairway.Communicator(engine, 0, [5])),
                ("name is a str, not 5", lambda: fairway.Communicator(engine, 0, mine, name=5)),
                ("timeout is seconds.*not 'a'", lambda: fairway.Communicator(engine, 0, mine, timeout="a")),
                ("environment is a dict", lambda: fairway.Communicator.join(environment=5)),
                ("algorithm is a str, not 5", lambda: group.all_reduce(x, algorithm=5)),
                ("timeout is seconds.*not 'a'", lambda: group.all_reduce(x, timeout="a")),
                ("timeout is seconds", lambda: group.barrier(timeout=float("nan"))),
                ("root is a whole number", lambda: group.broadcast(x, root="a")),
                ("root is a whole number", lambda: group.reduce(x, root=None)),
                (r"send_counts\[0\] is a whole number", lambda: group.all_to_allv(x, x, ["a"], [4])),
                ("receive_counts is a list of 1 whole numbers", lambda: group.all_to_allv(x, x, [4], 5)),
                ("color is a whole number", lambda: group.split("a")),
                ("without is a list of ranks, not 5", lambda: group.shrink(5)),
                ("added is a list of str.*not 5", lambda: group.grow(5, name="x")),
                ("name is a str, not 5", lambda: group.grow(["a"], name=5)),
                ("gpu is a whole number", lambda: group.use_gpu("a")),
            ):
                with self.subTest(words=words), self.assertRaisesRegex(fairway.InvalidArgument, words):
                    call()
            group.barrier()

    def test_a_message_to_a_rank_that_does_not_answer_times_out(self):
        """Its connection does not even come about: nothing was started that could be cancelled."""

        def body(group):
            with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and says nothing
                group._addresses = ["127.0.0.1:%d" % silent.getsockname()[1]] * 2
                for call in (group.send, group.receive):
                    with self.assertRaisesRegex(fairway.TimedOut, f"rank {1 - group.rank}") as caught:
                        call(np.ones(4), 1 - group.rank, timeout=0.2)
                    self.assertEqual(caught.exception.rank, 1 - group.rank)
            group.barrier()

        ranks.threads(body, 2, timeout=20.0)


class Arrays(unittest.TestCase):
    def test_dlpack_alone_is_enough(self):
        def body(group):
            me, seen = group.rank, np.testing.assert_array_equal
            for kind in ("int32", "float16", "float64"):
                values, out = np.arange(6, dtype=kind) + me, np.zeros(12, kind)
                tensor, whole = Tensor(values), Tensor(out)
                self.assertIs(group.all_gather(tensor, whole), whole)
                seen(out, np.concatenate([np.arange(6), np.arange(6) + 1]))
                self.assertIs(group.all_reduce(tensor), tensor)  # in place
                seen(values, 2 * np.arange(6) + 1)
                group.all_reduce(tensor, Tensor(out[:6]), "average", wait=False).wait()
                seen(out[:6], values)
                group.broadcast(whole, root=1)
            with self.assertRaisesRegex(fairway.InvalidArgument, "array is not contiguous"):
                group.all_reduce(Tensor(np.ones((4, 4))[:, ::2]))
            with self.assertRaisesRegex(fairway.InvalidArgument, "out is needed"):
                group.all_gather(tensor)  # of whose kind no new one can be made
            group.barrier()

        ranks.threads(body, 2, timeout=20.0)


class SameBits(unittest.TestCase):
    def test_reproducible_sums_are_those_of_one_rank_after_the_other(self):
        size, count = 3, 999
        given = [np.random.default_rng(rank).standard_normal(count).astype(np.float32) * 10.0 ** (rank * 3) for rank in range(size)]
        want = given[0].copy()
        for values in given[1:]:
            want += values
        self.assertFalse(np.array_equal(want, given[2] + given[1] + given[0]))  # else any order would do

        def body(group):
            me, seen = group.rank, np.testing.assert_array_equal
            for algorithm in ("automatic", "one_shot", "direct"):
                seen(group.all_reduce(given[me].copy(), reproducible=True, algorithm=algorithm), want)
            result = group.reduce(given[me].copy(), root=1, reproducible=True)
            if me == 1:
                seen(result, want)
            seen(group.reduce_scatter(given[me].copy(), reproducible=True), want[333 * me : 333 * (me + 1)])
            with self.assertRaisesRegex(fairway.InvalidArgument, "in the order of ranks"):
                group.all_reduce(given[me].copy(), reproducible=True, algorithm="ring")
            group.barrier()

        ranks.threads(body, size, timeout=20.0)


class More(unittest.TestCase):
    def test_a_group_grows_by_engines_that_have_come_since(self):
        together = fairway.Loopback()
        engines = [fairway.Engine(loopback=together, transports=["loopback"]) for _ in range(3)]
        addresses = [engine.address for engine in engines]

        def use(grown, rank):
            self.assertEqual((grown.rank, grown.size, grown.name, grown.addresses), (rank, 3, "larger", tuple(addresses)))
            self.assertEqual(grown.all_reduce(np.ones(2))[0], 3)
            self.assertEqual(grown.all_gather(np.array([rank])).tolist(), [[0], [1], [2]])

        def one(rank):
            if rank == 2:
                with fairway.Communicator(engines[2], 2, addresses, name="larger", timeout=20.0) as grown:
                    use(grown, 2)
            else:
                with fairway.Communicator(engines[rank], rank, addresses[:2], timeout=20.0) as group:
                    with group.grow(addresses[2:], name="larger") as grown:
                        use(grown, rank)
                    self.assertEqual(group.all_reduce(np.ones(1))[0], 2)  # this one stays

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for ended in [pool.submit(one, rank) for rank in range(3)]:
                ended.result()
        for engine in engines:
            engine.close()

    def test_who_does_not_come_to_grow_is_named(self):
        def body(group):
            with self.assertRaisesRegex(fairway.Error, "rank 2"):
                group.grow(["127.0.0.1:1"], name="larger", timeout=0.5)
            with self.assertRaisesRegex(fairway.InvalidArgument, "timeout"):
                group.grow([], name="other", timeout=0)

        ranks.threads(body, 2, timeout=20.0)


class TogetherAndAlone(unittest.TestCase):
    def test_a_group_runs_at_the_end_of_the_block(self):
        def body(group):
            me = group.rank
            small = [np.full(3, me + i, dtype=np.float32) for i in range(5)]
            other, parts = np.full(2, me, dtype=np.int32), np.zeros((3, 2), dtype=np.int32)
            with group.run_all() as calls:
                for i, values in enumerate(small):
                    self.assertIs(calls.all_reduce(values), values)
                    self.assertEqual(values[0], me + i)
                calls.all_gather(other, parts)
                calls.broadcast(other, root=2)
                calls.barrier()
            for i, values in enumerate(small):
                np.testing.assert_array_equal(values, np.full(3, 3 + 3 * i))
            np.testing.assert_array_equal(parts[:, 0], [0, 1, 2])
            self.assertEqual(other[0], 2)
            with group.run_all(wait=False) as calls:
                calls.all_reduce(other)
            self.assertIsInstance(calls.operation, fairway.Operation)
            calls.operation.wait()
            self.assertEqual(other[0], 6)

        ranks.threads(body, 3, timeout=20.0)

    def test_a_block_that_raises_runs_nothing(self):
        def body(group):
            values = np.ones(2, dtype=np.float32)
            with self.assertRaisesRegex(ValueError, "mine"):
                with group.run_all() as calls:
                    calls.all_reduce(values)
                    raise ValueError("mine")
            with self.assertRaisesRegex(fairway.InvalidArgument, "root 9"):
                with group.run_all() as calls:
                    calls.all_reduce(values)
                    calls.broadcast(values, root=9)
            self.assertEqual(values[0], 1)
            with group.run_all() as calls:
                with self.assertRaisesRegex(fairway.InvalidArgument, "wait=False"):
                    calls.all_reduce(values, wait=False)
                with self.assertRaisesRegex(AttributeError, "not split"):
                    calls.split(0)
            with self.assertRaisesRegex(fairway.InvalidArgument, "has run"):
                calls.barrier()
            group.barrier()

        ranks.threads(body, 2, timeout=20.0)

    def test_an_error_of_a_group_names_the_rank(self):
        def body(group):
            values = np.ones(2, dtype=np.float32)
            if group.rank == 1:
                return group.abort()
            with self.assertRaises(fairway.Error) as failed:
                with group.run_all() as calls:
                    calls.all_reduce(values)
                    calls.all_reduce(values)
            self.assertEqual(failed.exception.rank, 1)

        ranks.threads(body, 2, timeout=20.0)

    def test_local_completion_lets_the_root_run_ahead(self):
        sent = threading.Event()

        def body(group):
            values, all_values = np.full(4, 7 if group.rank == 0 else 0, dtype=np.int64), np.zeros((3, 4), dtype=np.int64)
            group.barrier()
            if group.rank != 0:
                self.assertTrue(sent.wait(20))
            for _ in range(4):
                group.broadcast(values, local_completion=True)
            sent.set()
            self.assertEqual(values[3], 7)
            group.reduce(values, root=1, local_completion=True)
            group.gather(values, all_values if group.rank == 2 else None, root=2, local_completion=True)
            group.scatter(all_values if group.rank == 2 else None, values, root=2, local_completion=True)
            self.assertEqual(values[0], 21 if group.rank == 1 else 7)
            group.barrier()

        ranks.threads(body, 3, timeout=20.0)

    def test_what_was_measured_is_told(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):

            def body(group):
                values = np.ones(8, dtype=np.float32)
                self.assertRegex(group.explain("all_reduce", values), "all_reduce of 32 bytes: by .*: by the model of costs")
                group.barrier()
                self.assertIn("all_reduce", group.measure(64))
                self.assertRegex(group.explain("all_reduce", values), "32 bytes take .* us")
                self.assertIn("the call names it", group.explain("all_reduce", values, algorithm="ring"))
                self.assertIn("there is no other", group.explain("barrier"))
                with self.assertRaisesRegex(fairway.InvalidArgument, "'sum' is no operation"):
                    group.explain("sum", values)
                group.barrier()

            ranks.threads(body, 2, timeout=60.0)
            self.assertEqual(len(os.listdir(os.path.join(folder, "fairway"))), 1)


if __name__ == "__main__":
    unittest.main()
