"""By whom operations on streams go: the options of use_gpu(), the table of measure_gpu(), and what explain_stream() says."""

import os
import tempfile
import unittest

import ranks
from fairway.group_memory import _Memory
from gpu_ranks import GpuRanks

needs_nccl = unittest.skipUnless(os.environ.get("FAIRWAY_STANDIN_NCCL"), "FAIRWAY_STANDIN_NCCL names no library that stands in for NCCL")


class GpuWays(GpuRanks):
    def test_windows_are_read_from_the_size_that_the_options_name(self):
        self.run_ranks(
            """
            group = together(gpu_options={"nccl": "never", "windows_from": 1})
            usual = group.split(0)
            usual.use_gpu(group.rank)
            me, size, stream = group.rank, group.size, gpu.stream()
            whole = gpu.allocate(16 * (size + 1))
            mine, every = gpu.part(whole, 0, 16, "<f4", 4), gpu.part(whole, 16, 16 * size, "<f4", 4)
            outside = array(np.zeros(4 * size, np.float32))
            def values(rank):
                return np.arange(4, dtype=np.float32) + 10 * rank
            total, gathered = sum(values(rank) for rank in range(size)), np.concatenate([values(rank) for rank in range(size)])
            def explained(words, *call, **options):
                said = group.explain_stream(*call, **options)
                expect(said == words, said)
                said = usual.explain_stream(*call, **options)
                expect("bytes: by Fairway's kernels: " in said or options.get("captured"), said)
            window, kernels = "by Fairway, which reads it in window 1", "by Fairway's kernels: NCCL was not asked for"
            explained(f"all_gather of 32 bytes: {kernels}", "all_gather", mine, every)
            for one in (group, usual):
                one.register_window(whole)
            explained(f"all_gather of 32 bytes: {window}", "all_gather", mine, every)
            explained(f"all_gather of 32 bytes: {window}", "all_gather", mine, out=outside)
            explained(f"all_gather of 64 bytes: {kernels}", "all_gather", outside)
            explained(f"all_reduce of 16 bytes: {window}", "all_reduce", mine, op="max", captured=True)
            explained(f"all_reduce of 32 bytes: {kernels}", "all_reduce", every, outside)
            explained(f"all_reduce of 32 bytes in a graph: {kernels}", "all_reduce", every, outside, captured="truth, as Python has it")
            explained(f"all_reduce of 32 bytes: {kernels}", "all_reduce", every, algorithm="direct")
            explained(f"broadcast of 16 bytes: {window}", "broadcast", mine, 1)
            explained(f"reduce_scatter of 32 bytes: {window}", "reduce_scatter", every, mine)
            explained(f"all_to_all of 32 bytes: {window}", "all_to_all", every, outside, wait=False, timeout=3, stream=stream)
            explained(f"all_to_all of 32 bytes: {kernels}", "all_to_all", every, every)
            explained(f"barrier of 0 bytes: {kernels}", "barrier")
            for one in (group, usual):
                gpu.write(mine, values(me).tobytes())
                gpu.write(every, bytes(16 * size))
                one.all_gather(mine, every, stream=stream)
                one.all_reduce(mine, stream=stream)
                one.all_reduce(every, outside, stream=stream)
                gpu.synchronize(stream)
                one.stream_status()
                np.testing.assert_array_equal(seen(every), gathered)
                np.testing.assert_array_equal(seen(mine), total)
                np.testing.assert_array_equal(seen(outside), size * gathered)
            usual.close()
            group.close()
            """,
            2,
        )

    def test_an_explanation_makes_nothing_and_starts_nothing(self):
        self.run_ranks(
            """
            group = together(gpu_options={"nccl": "never"})
            stream, x = gpu.stream(), array(np.ones(8, np.float32))
            if group.rank == 0:  # the others ask nothing
                for operation, bytes_of_all in (("all_gather", 64), ("reduce_scatter", 32), ("all_to_all", 32)):
                    said = group.explain_stream(operation, x)  # of this array no other can be made
                    expect(said.startswith(f"{operation} of {bytes_of_all} bytes: by Fairway's kernels"), said)
                expect("all_reduce of 4194304 bytes" in group.explain_stream("all_reduce", np.ones(1 << 20, np.float32)))
                expect("all_gather of 24 bytes" in group.explain_stream("all_gather", np.zeros(3, "i4")))
                expect("broadcast of 32 bytes" in group.explain_stream("broadcast", np.zeros(2, "c16")))
            group.barrier()
            if group.rank == 1:
                time.sleep(0.3)
            later = group.barrier(wait=False)
            expect("all_reduce of 32" in group.explain_stream("all_reduce", x))
            expect(later.done, "it came before its turn")
            group.all_reduce(x, stream=stream)
            gpu.synchronize(stream)
            group.stream_status()
            expect(seen(x)[0] == 2)
            group.close()
            """,
            2,
        )

    @needs_nccl
    def test_nccl_takes_what_the_options_give_it(self):
        self.run_ranks(
            """
            import ctypes
            library = os.environ["FAIRWAY_STANDIN_NCCL"]
            group = together(timeout=600.0, gpu_options={"nccl": "always", "nccl_library": library})
            bare, never = group.split(0), group.split(0)
            bare.use_gpu(group.rank, nccl="always", guarded=False, nccl_library=pathlib.Path(library))
            never.use_gpu(group.rank, nccl="never", nccl_library=library)
            counted = ctypes.CDLL(library).fairway_standin_nccl_operations
            counted.restype = ctypes.c_long
            stream, x, whole = gpu.stream(), array(np.zeros(100, np.float32)), array(np.zeros(100, np.int32), "<i4")
            for one, words in (
                (group, "by NCCL 2.28.9, guarded: it was asked for always"),
                (bare, "by NCCL 2.28.9, unguarded: it was asked for always"),
                (never, "by Fairway's kernels: NCCL was not asked for"),
            ):
                expect(one.explain_stream("all_reduce", x) == f"all_reduce of 400 bytes: {words}", one.explain_stream("all_reduce", x))
                said = one.explain_stream("all_reduce", x, captured=True)
                expect(said == f"all_reduce of 400 bytes in a graph: {words}", said)
                expect("kernels" in one.explain_stream("all_reduce", whole, op="average"))
                expect("kernels" in one.explain_stream("barrier"))
                gpu.write(x, np.arange(100, dtype=np.float32).tobytes())
                before = counted()
                one.all_reduce(x, stream=stream)
                gpu.synchronize(stream)
                one.stream_status()
                np.testing.assert_array_equal(seen(x), 2 * np.arange(100))
                expect(counted() - before == (one is not never), words)
            for one in (never, bare, group):
                one.close()
            """,
            2,
        )

    @needs_nccl
    def test_what_was_measured_is_kept_and_read(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_ranks(
                """
                table = pathlib.Path(os.environ["FOLDER"], "below", "table")
                options = {"nccl_library": os.environ["FAIRWAY_STANDIN_NCCL"], "table": table}
                group = together(timeout=600.0, peer_timeout=60.0, gpu_options=options)
                x = array(np.zeros(128, np.float32))
                expect("there is no table of this machine" in group.explain_stream("all_reduce", x))
                text = group.measure_gpu(512)
                for words in ("all_reduce", "all_to_all", "launched", "graph", " 512 ", "NCCL 2.28.9", f"kept in {table}"):
                    expect(words in text, words, text)
                expect("chosen" not in text and " 8192 " not in text and table.exists(), text)
                later = group.split(0)
                later.use_gpu(group.rank, **{**options, "table": str(table)})
                expect(f"({table})" in later.explain_stream("all_reduce", x), later.explain_stream("all_reduce", x))
                text = later.measure_gpu(most_bytes=512, compare=True)
                expect("best/it  chosen" in text, text)
                later.close()
                group.close()
                """,
                2,
                {"FOLDER": folder},
                timeout=300,
            )

    def test_options_that_cannot_be_are_refused_and_the_group_goes_on(self):
        self.run_ranks(
            """
            group = joined(transports=["shm", "cuda"])
            x, wrong = array(np.ones(4, np.float32)), fairway.InvalidArgument
            refused(wrong, "use_gpu() first", group.measure_gpu, 512)
            expect(group.explain_stream("all_reduce", x) == "use_gpu() was not called")
            for words, options in (
                ("nccl is 'measured', 'never' or 'always', not 'sometimes'", {"nccl": "sometimes"}),
                ("nccl cannot be 1", {"nccl": 1}),
                ("nccl cannot be None", {"nccl": None}),
                ("guarded cannot be 'no'", {"guarded": "no"}),
                ("nccl_library cannot be 3", {"nccl_library": 3}),
                ("table cannot be None", {"table": None}),
                ("windows_from", {"windows_from": -1}),
                ("windows_from", {"windows_from": 1 << 64}),
                ("windows_from", {"windows_from": 1.5}),
                ("meet_from", {"meet_from": -1}),
                ("meet_from", {"meet_from": "1M"}),
                ("messages cannot be 'no'", {"messages": "no"}),
            ):
                refused(wrong, words, group.use_gpu, group.rank, **options)
            refused(TypeError, "windows", group.use_gpu, group.rank, windows=1)
            for words, most in (("most_bytes", -1), ("most_bytes", "many"), ("most_bytes", 1 << 64)):
                refused(wrong, words, group.measure_gpu, most)
            refused(wrong, "compare cannot be 'no'", group.measure_gpu, 512, "no")
            expect(group.failure is None)
            group.close()
            # These every rank hears of.
            group = together(name="second", gpu_options={"nccl": "never"})
            refused(wrong, "nothing to choose", group.measure_gpu, 512)
            for kind, words, options in (
                (wrong, "differ between rank 0", {"guarded": group.rank == 0}),
                (fairway.Unsupported, "/nowhere/libnccl.so.2", {"nccl": "always", "nccl_library": "/nowhere/libnccl.so.2"}),
            ):
                other = group.split(0)
                refused(kind, words, other.use_gpu, group.rank, **options)
                expect(other.failure is None and other.all_reduce(np.ones(2))[0] == 2)
                other.close()
            group.close()
            """,
            2,
        )

    def test_explanations_of_what_cannot_be_are_refused(self):
        self.run_ranks(
            """
            group = together(gpu_options={"nccl": "never"})
            x, wrong, ask = array(np.ones(4, np.float32)), fairway.InvalidArgument, group.explain_stream
            those = "barrier, all_reduce, reduce, broadcast, all_gather, gather, scatter, reduce_scatter, all_to_all, all_to_allv run on streams"
            told = {"reduce": ask("reduce", x), "gather": ask("gather", x), "all_to_allv": ask("all_to_allv", x, array(np.ones(4, np.float32)), [2, 2], [2, 2])}
            for operation, words in told.items():
                expect(words.startswith(f"{operation} of {32 if operation == 'gather' else 16} bytes: by Fairway's kernels"), words)
            for operation in ("sum", "", "send", "close", "_start", "__init__", 3, None, ["all_reduce"]):
                refused(wrong, f"{operation!r} is no operation: {those}", ask, operation, x)
            every_other = gpu.part(x, 0, 8, "<f4", 4)
            every_other.__cuda_array_interface__["strides"] = (8,)
            for kind, words, call, options in (
                (TypeError, "argument", ("all_reduce",), {}),
                (TypeError, "argument", ("barrier", x), {}),
                (TypeError, "root", ("all_reduce", x), {"root": 1}),
                (TypeError, "cudaStream_t", ("all_reduce", x), {"stream": "a stream"}),
                (wrong, "op is one of", ("all_reduce", x), {"op": "mean"}),
                (wrong, "algorithm is", ("all_reduce", x), {"algorithm": "best"}),
                (wrong, "not contiguous", ("all_reduce", every_other), {}),
                (wrong, "shows no memory", ("all_reduce", "no memory"), {}),
                (wrong, "needs 2 blocks", ("all_gather", x, x), {}),
                (wrong, "no 2 equal blocks", ("all_to_all", gpu.part(x, 0, 12, "<f4", 4)), {}),
                (wrong, "not a multiple of 2 ranks", ("reduce_scatter", gpu.part(x, 0, 12, "<f4", 4)), {}),
                (fairway.AccessDenied, "read-only", ("all_reduce", b"bytes"), {}),
            ):
                refused(kind, words, ask, *call, **options)
            expect(ask("all_reduce", x, op="premul_sum", factor=2).startswith("all_reduce of 16 bytes: by Fairway's kernels"))
            expect(group.failure is None and group.all_reduce(np.ones(2))[0] == 2)
            group.close()
            refused(fairway.Closed, "closed", ask, "all_reduce", x)
            refused(fairway.Closed, "closed", group.measure_gpu, 512)
            """,
            2,
        )


class Tensors(unittest.TestCase):
    """Without a GPU: how torch's tensors are read as arguments."""

    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is absent")
        self.torch = torch

    def test_explanations_are_about_torchs_tensors_too(self):
        torch = self.torch

        def body(group):
            yield group.explain_stream("all_gather", torch.zeros(3, dtype=torch.bfloat16))
            yield group.explain_stream("all_reduce", torch.ones(3, dtype=torch.bool), op="min")
            yield group.explain_stream("reduce_scatter", torch.zeros(4, 2))
            yield group.explain_stream("all_to_all", torch.zeros(4, dtype=torch.complex64))

        self.assertEqual(ranks.threads(lambda group: list(body(group)), 1), [["use_gpu() was not called"] * 4])

    def test_what_is_nowhere_has_the_elements_of_its_model(self):
        model = _Memory(self.torch.zeros(3, dtype=self.torch.bfloat16), "array")
        made = _Memory(model.elsewhere([4, 3]), "out", True)
        self.assertEqual((made.address, made.nbytes, made.type, made.item, made.shape, made.keep), (0, 24, "bfloat16", 2, [4, 3], None))
        self.assertEqual((model.nbytes, model.shape), (6, [3]))
        self.assertNotEqual(model.address, 0)


if __name__ == "__main__":
    unittest.main()
