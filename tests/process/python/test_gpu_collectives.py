"""fairway.Communicator on GPU memory and streams, on a driver that stands in for CUDA's where the build has one."""

import unittest

from gpu_ranks import GpuRanks


class GpuCollectives(GpuRanks):
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
            at = array(mine[me])
            expect((group.reduce(at, root=1, stream=stream) is at) == (me == 1))
            gathered = array(np.zeros(12 * size, np.float32)) if me == 2 else None
            group.gather(array(mine[me]), gathered, 2, stream=stream)
            one = array(np.zeros(12 // size, np.float32))
            group.scatter(array(mine[0]) if me == 0 else None, one, 0, stream=stream)
            sent, got = [me + 1, me, 2], [[other + 1, other, 2][me] for other in range(size)]
            vary = array(np.zeros(sum(got), np.float32))
            group.all_to_allv(array(mine[me]), vary, sent, got, stream=stream)
            scaled = array(np.ones(5, np.float32))
            group.all_reduce(scaled, op="premul_sum", factor=me + 0.5, stream=stream)
            letter = array(np.zeros(12, np.float32))
            group.stream_messages([("send", array(mine[me]), (me + 1) % size), ("receive", letter, (me + size - 1) % size)], stream)
            gpu.synchronize(stream)
            group.stream_status()
            if me == 1: np.testing.assert_array_equal(seen(at), total)
            if me == 2: np.testing.assert_array_equal(seen(gathered), np.concatenate(mine))
            np.testing.assert_array_equal(seen(one), mine[0][block])
            parts = [np.split(mine[other], np.cumsum([other + 1, other, 2]))[me] for other in range(size)]
            np.testing.assert_array_equal(seen(vary), np.concatenate(parts))
            np.testing.assert_array_equal(seen(scaled), np.full(5, sum(range(size)) + size / 2))
            np.testing.assert_array_equal(seen(letter), mine[(me + size - 1) % size])
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
                (fairway.InvalidArgument, "a message is", lambda: group.stream_messages([("take", x, 1)], stream)),
                (fairway.InvalidArgument, "no other rank", lambda: group.stream_messages([("send", x, group.rank)], stream)),
                (fairway.InvalidArgument, "factor is 2", lambda: group.all_reduce(x, factor=2, stream=stream)),
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

    def test_windows_show_arrays_until_they_end(self):
        self.run_ranks(
            """
            group = together()
            stream = gpu.stream()
            me, size = group.rank, group.size
            whole = gpu.allocate(4096 * (size + 1), bytes([me + 1]) * 4096 * (size + 1))
            window = group.register_window(whole)
            expect(type(window).__name__ == "Window" and window.number == 1 and window.nbytes == whole.nbytes, window)
            expect(repr(window) == f"<fairway.Window 1 of '{group.name}', {whole.nbytes} bytes>", window)
            group.all_gather(gpu.part(whole, 0, 4096), gpu.part(whole, 4096, 4096 * size), stream=stream)
            gpu.synchronize(stream)
            group.stream_status()
            expect(gpu.read(whole)[4096:] == b"".join(bytes([rank + 1]) * 4096 for rank in range(size)))
            window.deregister()
            expect("deregistered" in repr(window), window)
            try:
                window.deregister()
                raise AssertionError("no error")
            except fairway.Revoked as error:
                expect("window 1 was deregistered" in str(error), error)
            # Nothing but the communicator keeps an array whose Window is dropped.
            def keeps(how):
                kept = gpu.part(whole, 0, 4096, "<f4", 4)
                seen = weakref.ref(kept)
                window = how(kept)
                del kept
                gc.collect()
                expect(seen() is not None)
                return seen, window
            seen, second = keeps(group.register_window)
            expect(second.number == 2)
            second.deregister()
            gc.collect()
            expect(seen() is None, "kept after its window")
            with group.register_window(whole) as third:
                expect(third.number == 3)
            expect("deregistered" in repr(third), third)
            with group.register_window(whole) as fourth:
                fourth.deregister()
            try:
                with group.register_window(whole) as fifth:
                    raise KeyError
            except KeyError:
                expect("deregistered" not in repr(fifth), fifth)
            dropped, _ = keeps(lambda kept: [group.register_window(kept), None][1])
            held, last = keeps(group.register_window)
            group.close()
            gc.collect()
            expect(dropped() is None and held() is None, "kept after its communicator")
            expect("over" in repr(fifth), fifth)
            try:
                fifth.deregister()
                raise AssertionError("no error")
            except fairway.Error as error:
                expect(not isinstance(error, fairway.Revoked), error)
            """,
            2,
        )

    def test_the_array_of_a_window_lives_as_long_as_an_operation_of_its_communicator(self):
        self.run_ranks(
            """
            group = together(gpu_options={"nccl": "never", "windows_from": 1})
            me, size, stream = group.rank, group.size, gpu.stream()
            shown, out = array(np.full(4096, me + 1, np.float32)), array(np.zeros(4096 * size, np.float32))
            kept = weakref.ref(shown)
            group.register_window(shown)
            if me == 1:
                time.sleep(0.5)  # rank 0 has dropped everything but an Operation, and this rank reads its window
            group.all_gather(shown, out, stream=stream)
            last = group.barrier(wait=False)
            del shown, group
            gc.collect()
            expect(kept() is not None, "let go while its communicator lives")
            gpu.synchronize(stream)
            last.wait()
            np.testing.assert_array_equal(seen(out), np.repeat(np.arange(1, size + 1, dtype=np.float32), 4096))
            expect(kept() is not None, "let go before its communicator's end")
            del last
            gc.collect()
            expect(kept() is None, "kept after its communicator")
            """,
            2,
        )

    def test_a_window_whose_call_was_interrupted_keeps_its_array(self):
        self.run_ranks(
            """
            class Interrupted(Exception): pass
            def interrupt(*_): raise Interrupted
            signal.signal(signal.SIGALRM, interrupt)
            group = together()
            shown = array(np.ones(4, np.float32))
            kept = weakref.ref(shown)
            if group.rank == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                try:
                    group.register_window(shown)
                    raise AssertionError("not interrupted")
                except Interrupted:
                    pass
            else:
                time.sleep(1)
                group.register_window(shown)
            del shown
            gc.collect()
            expect(kept() is not None, "let go, and the call goes on")
            group.barrier()
            group.close()
            gc.collect()
            expect(kept() is None, "kept after its communicator")
            """,
            2,
        )

    def test_windows_that_make_no_sense_are_refused_and_the_group_goes_on(self):
        self.run_ranks(
            """
            early = joined(name="early", transports=["shm", "cuda"])
            x = array(np.ones(4, np.float32))
            try:
                early.register_window(x)
                raise AssertionError("no error")
            except fairway.InvalidArgument as error:
                expect("use_gpu" in str(error), error)
            early.close()
            group = together()
            every_other = gpu.part(x, 0, 8, "<f4", 4)
            every_other.__cuda_array_interface__["strides"] = (8,)
            for kind, words, memory in (
                (fairway.InvalidArgument, "on the host, and a window is a GPU's: make the array on the GPU", np.ones(4)),
                (fairway.InvalidArgument, "on the host", bytearray(16)),
                (fairway.InvalidArgument, "not contiguous: pass a copy that is", every_other),
                (fairway.InvalidArgument, "at least one byte", gpu.part(x, 0, 0)),
                (fairway.InvalidArgument, "", "no memory"),
            ):
                try:
                    group.register_window(memory)
                except kind as error:
                    expect(words in str(error), error)
                else:
                    raise AssertionError(words)
            # What one rank is refused by its engine, the others hear.
            refused = gpu.part(x, 0, 16 if group.rank == 0 else 0)
            gone = weakref.ref(refused)
            try:
                group.register_window(refused)
                raise AssertionError("no error")
            except fairway.InvalidArgument as error:
                expect("at least one byte" in str(error) and group.failure is None, error)
            del refused
            gc.collect()
            expect(gone() is None, "kept, though no window shows it")
            expect(group.register_window(x).number == 1)
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
