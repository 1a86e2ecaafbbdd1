"""fairway.Communicator: every operation on every kind of array, errors that name the rank, waiting that ends."""

import array
import asyncio
import os
import signal
import threading
import time
import unittest

import fairway
import numpy as np

import ranks

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


class Operations(unittest.TestCase):
    def test_every_operation_gives_what_numpy_computes(self):
        size = 3

        def body(group):
            me, seen = group.rank, np.testing.assert_array_equal
            mine = [np.arange(12, dtype=np.float32) + 100 * rank for rank in range(size)]
            total, x = sum(mine), mine[me].copy()
            self.assertIs(group.all_reduce(x), x)
            seen(x, total)
            out = np.empty_like(x)
            self.assertIs(group.all_reduce(mine[me], out, "max"), out)
            seen(out, mine[-1])
            seen(group.all_reduce(mine[me].copy(), op="average"), (total / 3).astype(np.float32))
            result = group.reduce(mine[me].copy(), op="min", root=1)
            self.assertEqual(result is None, me != 1)
            if me == 1:
                seen(result, mine[0])
            x = mine[me].copy()
            seen(group.broadcast(x, root=2), mine[2])
            seen(group.all_gather(mine[me]), np.stack(mine))
            gathered = group.gather(mine[me], root=1)
            self.assertEqual(gathered is None, me != 1)
            if me == 1:
                seen(gathered, np.stack(mine))
            whole = np.arange(12, dtype=np.int64) if me == 0 else None
            seen(group.scatter(whole, np.empty(4, np.int64)), np.arange(4) + 4 * me)
            seen(group.reduce_scatter(mine[me]), total[4 * me : 4 * me + 4])
            seen(group.all_to_all(mine[me]), np.concatenate([one[4 * me : 4 * me + 4] for one in mine]))
            # Rank r sends r + 1 elements to each.
            sent = np.full((me + 1) * size, me, np.int16)
            out = np.full(6, -1, np.int16)
            group.all_to_allv(sent, out, [me + 1] * size, [1, 2, 3])
            seen(out, [0, 1, 1, 2, 2, 2])
            group.barrier()
            return True

        self.assertEqual(ranks.threads(body, size, timeout=20.0), [True] * size)

    def test_types_and_protocols(self):
        def body(group):
            for kind in TYPES:
                out = group.all_reduce(np.full(5, group.rank + 1, kind))
                np.testing.assert_array_equal(out, np.full(5, 3, kind))
            truths = np.array([group.rank == 0, True, False])
            np.testing.assert_array_equal(group.all_reduce(truths.copy(), op="max"), [True, True, False])
            np.testing.assert_array_equal(group.all_reduce(truths, op="min"), [False, True, False])
            np.testing.assert_array_equal(group.all_reduce(np.full(3, 1 + 2j)), np.full(3, 2 + 4j))
            plain = array.array("d", [1.0, 2.0])
            group.all_reduce(plain)
            self.assertEqual(plain.tolist(), [2.0, 4.0])
            text = bytearray(b"rank 0 says this" if group.rank == 0 else 16)
            self.assertEqual(bytes(group.broadcast(text)), b"rank 0 says this")
            records = np.zeros(4, [("a", "i4"), ("b", "f8")])
            records["b"] = group.rank
            self.assertEqual(group.all_gather(records)["b"].tolist(), [[0.0] * 4, [1.0] * 4])
            region = group.engine.allocate(4096)
            np.asarray(memoryview(region)).view(np.float64)[:] = group.rank
            every = group.all_gather(np.asarray(memoryview(region)).view(np.float64))
            self.assertEqual(every.sum(), 512)
            nothing = group.all_gather(np.empty((0, 3), np.float32))
            self.assertEqual(nothing.shape, (2, 0, 3))
            sub = np.zeros((4, 4), np.int32)[1:3]  # a contiguous view
            sub += 1
            self.assertEqual(int(group.all_reduce(sub).sum()), 16)
            del region, every

        ranks.threads(body, 2, timeout=20.0)

    def test_each_ranks_array_is_multiplied_by_its_factor(self):
        def body(group):
            me, seen = group.rank, np.testing.assert_array_equal
            for kind in ("float16", "float32", "float64", "complex64", "complex128"):
                mine = np.arange(6, dtype=kind) + (1j * me if kind[0] == "c" else 0)
                scaled = sum((np.arange(6) + (1j * rank if kind[0] == "c" else 0)) * (rank + 0.5) for rank in range(3)).astype(kind)
                kept, out = mine.copy(), np.empty_like(mine)
                seen(group.all_reduce(mine, out, "premul_sum", factor=me + 0.5), scaled)
                result = group.reduce(mine, out, "premul_sum", root=1, factor=np.float32(me + 0.5))
                seen(result, scaled if me == 1 else None)
                seen(group.reduce_scatter(mine, op="premul_sum", factor=me + 0.5), scaled[2 * me : 2 * me + 2])
                seen(mine, kept)
            seen(group.all_reduce(mine, op="premul_sum", factor=0 if me else 1), np.arange(6))
            for words, options in (
                ("factor is 2, which only premul_sum takes", {"factor": 2}),
                ("factor is a number, not 'half'", {"op": "premul_sum", "factor": "half"}),
            ):
                with self.assertRaisesRegex(fairway.InvalidArgument, words):
                    group.all_reduce(np.ones(2), **options)
            for kind, words in (("int32", "floating-point types"), ("bool", "have no premul_sum")):
                with self.assertRaisesRegex(fairway.InvalidArgument, words):
                    group.all_reduce(np.ones(2, kind), op="premul_sum")
            self.assertEqual(group.all_reduce(np.ones(1))[0], 3)

        ranks.threads(body, 3, timeout=20.0)

    def test_messages(self):
        def body(group):
            other = 1 - group.rank
            large = np.arange(1 << 18, dtype=np.float64)
            into = np.zeros_like(large)
            received = group.receive(into, other, tag=7, wait=False)
            sent = group.send(large + group.rank, other, tag=7, wait=False)
            self.assertEqual(received.wait(20), large.nbytes)
            sent.wait(20)
            np.testing.assert_array_equal(into, large + other)
            if group.rank == 0:
                group.send(b"short", 1)
            else:
                into = bytearray(100)
                self.assertEqual(group.receive(into, 0), 5)
                self.assertEqual(into[:5], b"short")
            group.barrier()
            if group.rank == 0:
                with self.assertRaisesRegex(fairway.Error, "receive from rank 1") as failed:
                    group.receive(into, 1, tag=9, timeout=0.3)
                self.assertEqual(failed.exception.rank, 1)
            group.barrier()

        ranks.threads(body, 2, timeout=20.0)

    def test_split_and_the_same_work_in_parts(self):
        def body(group):
            part = group.split(group.rank % 2, key=-group.rank)
            self.assertEqual((part.size, part.rank), (2, 0 if group.rank >= 2 else 1))
            self.assertEqual(len(set(part.addresses)), 2)
            self.assertEqual(int(part.all_reduce(np.array([group.rank]))[0]), 2 if group.rank % 2 == 0 else 4)
            part.send(np.array([group.rank]), 1 - part.rank, wait=False)
            other = np.zeros(1, int)
            part.receive(other, 1 - part.rank)
            self.assertEqual(int(other[0]) % 2, group.rank % 2)
            self.assertIsNone(group.split(-1 if group.rank == 3 else 0) if group.rank == 3 else None)
            if group.rank != 3:
                self.assertEqual(group.split(0).size, 3)
            part.close()

        ranks.threads(body, 4, timeout=20.0)


class Waiting(unittest.TestCase):
    def test_started_operations_progress_while_python_computes(self):
        def body(group):
            arrays = [np.full(1 << 16, float(group.rank + i)) for i in range(20)]
            started = [group.all_reduce(one, wait=False) for one in arrays]
            end = time.monotonic() + 20
            while not started[-1].done and time.monotonic() < end:
                time.sleep(0.001)  # nobody waits for them
            self.assertTrue(all(operation.done for operation in started))
            for i, operation in enumerate(started):
                self.assertIs(operation.wait(), arrays[i])
                self.assertIs(operation.result(), arrays[i])
                self.assertEqual(arrays[i][0], 2 * i + 1)
            told = threading.Event()
            group.barrier(wait=False).add_done_callback(lambda operation: operation.done and told.set())
            self.assertTrue(told.wait(20))
            group.all_reduce(np.ones(1 << 20), wait=False)  # dropped at once: the array lives until its end
            group.barrier()

        ranks.threads(body, 2, timeout=20.0)

    def test_a_callback_may_be_the_last_that_knows_the_group(self):
        def one(rank, engine, addresses):
            told = threading.Event()
            group = fairway.Communicator(engine, rank, addresses, timeout=20.0)
            late = group.barrier(wait=False)
            if rank == 1:
                late.wait()
                return group.close()
            late.add_done_callback(lambda operation: told.set())
            del group, late
            came.append(told.wait(20))

        came = []
        joined = fairway.Loopback()
        engines = [fairway.Engine(loopback=joined, transports=["loopback"]) for _ in range(2)]
        threads = [threading.Thread(target=one, args=(rank, engine, [e.address for e in engines])) for rank, engine in enumerate(engines)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(came, [True])
        for engine in engines:
            engine.close()

    def test_await(self):
        def body(group):
            async def main():
                arrays = [np.full(1000, group.rank + i) for i in range(10)]
                sums = await asyncio.gather(*(finish(group.all_reduce(one, wait=False)) for one in arrays))
                self.assertEqual([int(one[0]) for one in sums], [2 * i + 1 for i in range(10)])
                if group.rank == 0:
                    with self.assertRaises(fairway.DeadlineExceeded):
                        await group.barrier(timeout=0.5, wait=False)
                else:
                    await asyncio.sleep(1.5)

            async def finish(operation):
                return await operation

            asyncio.run(main())

        ranks.threads(body, 2, timeout=20.0)

    def test_a_wait_may_end_before_the_operation(self):
        def body(group):
            if group.rank == 1:
                time.sleep(0.5)
                return group.barrier()
            operation = group.barrier(wait=False)
            with self.assertRaises(fairway.TimedOut):
                operation.wait(0.05)
            with self.assertRaises(fairway.TimedOut):
                operation.result()
            operation.wait(20)

        ranks.threads(body, 2, timeout=20.0)

    def test_abort_ends_it_here_and_names_this_rank_to_the_others(self):
        def body(group):
            group.barrier()
            if group.rank == 1:
                threading.Timer(0.1, group.abort).start()
            elif group.rank == 2:
                time.sleep(0.5)
            with self.assertRaises(fairway.Cancelled) as caught:
                group.barrier()
            if group.rank == 1:
                return
            self.assertEqual((caught.exception.rank, caught.exception.operation), (1, 3))  # joining was the first
            self.assertIn("rank 1", str(caught.exception))
            with group.shrink() as rest:
                self.assertEqual(rest.size, 2)
                rest.barrier()

        ranks.threads(body, 3, timeout=20.0)

    def test_ctrl_c_interrupts_and_a_close_ends_what_runs(self):
        script = """
            import signal, threading
            group = joined()
            if group.rank == 1:
                time.sleep(2)
                os._exit(0)
            for _ in range(3):
                threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                start = time.monotonic()
                operation = group.barrier(wait=False)
                try:
                    operation.wait()
                    sys.exit("not interrupted")
                except KeyboardInterrupt:
                    expect(time.monotonic() - start < 1, "late")
                break
            group.abort()
            try:
                operation.wait()
                sys.exit("went on")
            except fairway.Error as error:
                print(type(error).__name__)
            try:
                group.barrier()
            except fairway.Closed:
                print("closed")
        """
        said = ranks.run(self, script, 2)
        self.assertIn("closed", said[0])


class Errors(unittest.TestCase):
    def test_bad_arguments_name_what_is_wrong_and_leave_the_group_whole(self):
        def body(group):
            ones = np.ones(8, np.float32)
            for call, words in (
                (lambda: group.all_reduce(np.ones((4, 4))[:, ::2]), "array is not contiguous"),
                (lambda: group.all_reduce(ones, np.ones(8)), "array has elements of float32, out of float64"),
                (lambda: group.all_reduce(ones, np.ones(7, np.float32)), "array has 32 bytes, and needs as out 28"),
                (lambda: group.all_reduce(ones, op="mean"), "op is one of"),
                (lambda: group.all_reduce(np.ones(2, bool)), "dtype bool have no sum"),
                (lambda: group.all_reduce(np.ones(2, np.complex64), op="max"), "complex64 have no max"),
                (lambda: group.all_reduce(np.ones(2, ">f4")), "no known dtype have no sum"),
                (lambda: group.all_reduce(np.array(["a"], object)), "Python objects"),
                (lambda: group.all_reduce(b"read-only"), "read-only"),
                (lambda: group.all_reduce(3), "int shows no memory"),
                (lambda: group.broadcast(ones, root=2), "root 2 is no rank of 0 to 1"),
                (lambda: group.all_gather(bytearray(4)), "out is needed"),
                (lambda: group.reduce_scatter(np.ones(3)), "not a multiple of 2 ranks"),
                (lambda: group.all_to_all(np.ones(3)), "no 2 equal blocks"),
                (lambda: group.all_to_allv(ones, ones.copy(), [1], [1, 1]), "send_counts"),
                (lambda: group.all_to_allv(ones, ones.copy(), [9, 0], [9, 0]), "reach element 9, of 8"),
                (lambda: group.all_reduce(ones, algorithm="quick"), "algorithm is"),
                (lambda: group.all_reduce(ones, timeout=float("nan")), "timeout is seconds, or None"),
                (lambda: group.send(ones, group.rank), "not another rank"),
                (lambda: group.receive(ones, 5), "not another rank"),
                (lambda: group.shrink([7]), "not another rank"),
                (lambda: group.barrier(wait=False).add_done_callback(3), "can be called"),
            ):
                with self.assertRaisesRegex(fairway.Error, words):
                    call()
            self.assertIsNone(group.failure)
            self.assertEqual(group.all_reduce(ones)[0], 2)

        ranks.threads(body, 2, timeout=20.0)

    def test_a_mismatch_is_named_at_both(self):
        def body(group):
            with self.assertRaisesRegex(fairway.InvalidArgument, "rank") as failed:
                group.all_reduce(np.ones(8 + group.rank))
            self.assertEqual(failed.exception.operation, 2)
            self.assertIsNotNone(group.failure)
            with self.assertRaises(fairway.InvalidArgument):
                group.barrier()
            again = group.shrink()
            self.assertEqual((again.size, again.all_reduce(np.ones(1))[0]), (2, 2))
            again.close()

        ranks.threads(body, 2, timeout=20.0)

    def test_a_killed_rank_is_named_and_the_rest_go_on(self):
        script = """
            import pickle, signal
            import numpy as np
            group = joined()
            values = np.ones(1000, np.float32)
            group.all_reduce(values)
            if group.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                for _ in range(1000):
                    group.all_reduce(values, op="max")
                sys.exit("no error")
            except fairway.Error as error:
                expect(error.rank == 2 and error.operation > 1 and error.phase, error.rank, error.operation, error.phase)
                expect("rank 2" in str(error) and isinstance(error, ConnectionError), error)
                copy = pickle.loads(pickle.dumps(error))
                expect((copy.rank, copy.operation, copy.phase) == (error.rank, error.operation, error.phase))
            rest = group.shrink()
            expect((rest.size, rest.all_reduce(np.ones(10))[9]) == (3, 3.0), rest)
            rest.close()
        """
        ranks.run(self, script, 4, killed=(2,))

    def test_a_rank_that_never_comes_is_named(self):
        def body(group):
            if group.rank == 2:
                time.sleep(1.5)
                return
            with self.assertRaisesRegex(fairway.DeadlineExceeded, "rank 2") as failed:
                group.barrier(timeout=0.5)
            self.assertEqual(failed.exception.rank, 2)

        ranks.threads(body, 3, timeout=20.0)
        with fairway.Engine() as engine, self.assertRaisesRegex(fairway.Error, "rank 1"):
            fairway.Communicator(engine, 0, [engine.address, "127.0.0.1:1"], timeout=0.5)

    def test_a_forked_child_is_told(self):
        with fairway.Engine() as engine, fairway.Communicator(engine, 0, [engine.address]) as group:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                try:
                    group.barrier()
                except fairway.Forked:
                    group._group = None  # nor does its end wait for a thread that is the parent's
                    os._exit(0)
                os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            group.barrier()


if __name__ == "__main__":
    unittest.main()
