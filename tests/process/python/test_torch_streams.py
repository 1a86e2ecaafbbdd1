"""The backend "fairway" on GPU tensors: on a driver that stands in for CUDA's, with stand-ins for torch's tensors and streams."""

import unittest

from torch_ranks import HAVE, TorchRanks


@unittest.skipUnless(HAVE, "torch is not installed (apt-get install python3-torch)")
class WhyStage(unittest.TestCase):
    def test_ranks_that_cannot_use_their_gpus_together_say_which_and_why(self):
        from fairway.process_group_gpu import why_stage

        made = lambda **given: {"host": "a", "gpu": "", "stage": False, **given}
        self.assertEqual(why_stage([made(gpu="x"), made(gpu="y")]), "")
        self.assertEqual(why_stage([made(), made()]), "")  # a torch that does not tell GPUs apart
        self.assertEqual(why_stage([made()] * 8), "")
        self.assertIn("9 ranks", why_stage([made()] * 9))
        self.assertEqual(why_stage([made(), made(), made(host="b")]), "rank 2 is on another host than rank 0")
        self.assertEqual(why_stage([made(gpu="x"), made(gpu="y"), made(gpu="x")]), "ranks 0 and 2 share a GPU")
        self.assertEqual(why_stage([made(), made(stage=True)]), "rank 1 has FAIRWAY_TORCH_STAGE set")


class TorchStreams(TorchRanks):
    def test_collectives_run_behind_the_current_stream_and_it_waits_for_them(self):
        self.run_ranks(
            """
            group = begin()
            mine = [np.arange(12, dtype=np.float32) + 100 * other for other in range(size)]
            total, block = sum(mine), slice(12 // size * rank, 12 // size * (rank + 1))
            x, late = T(mine[rank]), T(np.zeros(12))
            group.allreduce([x], options()).wait()  # the first one: the ranks' GPUs meet
            cuda.current.synchronize()
            same(x.numpy(), total)
            expect(group.gpu.device == rank and not group.gpu.reason)
            ways = [group.communicator.explain_stream("all_reduce", np.zeros(count, np.float32)) for count in ((1 << 18) - 1, 1 << 18)]
            expect(["first one warp waits" in way for way in ways] == [False, True], ways)  # long ones leave the GPU to what computes beside
            # What the current stream brings is what is summed, and what it does afterwards waits.
            gate = cuda.gpu.hold(cuda.current.cuda_stream)
            seen = T(np.zeros(12))
            cuda.gpu.copy(cuda.current.cuda_stream, late.memory, T(mine[rank]).memory, 48)
            work = group.allreduce([late], options())
            expect(not work.is_completed() and not late.numpy().any())
            fails(fairway.TimedOut, "goes on", lambda: work.wait(datetime.timedelta(seconds=0.1)))
            expect(work.wait())  # at once
            cuda.gpu.copy(cuda.current.cuda_stream, seen.memory, late.memory, 48)
            expect(not work.is_completed() and late.recorded == [group.gpu._own.stream])
            gate.value = 1
            cuda.current.synchronize()
            same(seen.numpy(), total)
            expect(work.is_completed() and work.is_success() and work.result() == [late])
            # Every collective that the GPU has.
            big, part, dealt = T(np.zeros(12 * size)), T(np.zeros(12 // size)), T(np.zeros(12))
            y = T(mine[rank])
            group.allreduce_coalesced([y, T(mine[rank])], options(op=dist.ReduceOp.MAX)).wait()
            z = T(mine[rank])
            group.broadcast([z], options(rootRank=1)).wait()
            group._allgather_base(big, T(mine[rank]), options()).wait()
            group._reduce_scatter_base(part, T(mine[rank]), options()).wait()
            group.alltoall_base(dealt, T(mine[rank]), (), (), options()).wait()
            truths = T([rank == 0, True, False], "bool")
            group.allreduce([truths], options(op=dist.ReduceOp.BAND)).wait()
            group.barrier(options()).wait()  # on the host
            same(y.numpy(), mine[-1])
            same(z.numpy(), mine[1])
            same(big.numpy(), np.concatenate(mine))
            same(part.numpy(), total[block])
            same(dealt.numpy(), np.concatenate([one[block] for one in mine]))
            same(truths.numpy(), [False, True, False])
            # To one rank, of blocks of other sizes, and messages around a ring, of which each rank sends first.
            sent = [3, 6, 3]
            at, vary = T(mine[rank]), T(np.zeros(sent[rank] * size))
            group.reduce([at], options(op=SUM, rootRank=1)).wait()
            group.alltoall_base(vary, T(mine[rank]), [sent[rank]] * size, sent, options()).wait()
            letter = T(np.zeros(12))
            works = [group.send([T(mine[rank])], (rank + 1) % size), group.recv([letter], (rank - 1) % size)]
            for work in works: work.wait()
            cuda.current.synchronize()
            if rank == 1:
                same(at.numpy(), total)
            begins = sum(sent[:rank])
            same(vary.numpy(), np.concatenate([one[begins : begins + sent[rank]] for one in mine]))
            same(letter.numpy(), mine[(rank - 1) % size])
            expect(len(group.gpu._between) == 2)
            # PyTorch 2.x has the factor where pickle finds it.
            scaled, brought = T(mine[rank]), T(np.zeros(12 // size))
            op = Premul(rank + 0.5)
            group.allreduce([scaled], options(op=op)).wait()
            group._reduce_scatter_base(brought, T(mine[rank]), options(op=op)).wait()
            weighted = sum(one * (other + 0.5) for other, one in enumerate(mine))
            cuda.current.synchronize()
            same(scaled.numpy(), weighted)
            same(brought.numpy(), weighted[block])
            # One stream of the group's, whatever the caller's is: else the communicator had no room for so many.
            for _ in range(40):
                cuda.current = standin_torch.Stream(cuda.gpu)
                group.allreduce([x], options(op=dist.ReduceOp.MAX)).wait()
            elsewhere = T([1.0])
            elsewhere.device.index = 3
            fails(fairway.InvalidArgument, "one GPU of each rank", lambda: group.allreduce([elsewhere], options()))
            group.shutdown()
            """,
            3,
        )

    def test_a_tensor_that_all_ranks_show_is_read_where_it_is(self):
        self.run_ranks(
            """
            group = begin()
            fails(fairway.InvalidArgument, "a tensor on cpu", lambda: group.register_window(torch.zeros(4)))
            fails(fairway.InvalidArgument, "a list", lambda: group.register_window([1.0]))
            each = 7 << 20  # floats of a rank's block: long enough to be read
            mine = lambda other: np.arange(each * size, dtype=np.float32) % 1000 + other
            x, out = T(mine(rank)), T(np.zeros(each))
            window = group.register_window(x)  # the first use of the GPUs: they meet here
            expect(window.nbytes == x.numpy().nbytes and group.gpu.device == rank, window)
            told = group.communicator.explain_stream("reduce_scatter", x, out, stream=group.gpu._own.stream)
            expect("window" in told, told)
            group._reduce_scatter_base(out, x, options()).wait()
            cuda.current.synchronize()
            same(out.numpy(), sum(mine(other)[each * rank : each * (rank + 1)] for other in range(size)))
            group.barrier(options()).wait()  # behind it no rank reads
            window.deregister()
            small = T([1.0])
            group.allreduce([small], options()).wait()  # and the group goes on
            group.barrier(options()).wait()
            expect(small.numpy()[0] == size)
            group.shutdown()
            staged = begin()
            staged.gpu.reason = "rank 0 has FAIRWAY_TORCH_STAGE set"
            fails(fairway.Unsupported, "through the host: rank 0 has FAIRWAY_TORCH_STAGE", lambda: staged.register_window(small))
            staged.shutdown()
            """,
            2,
        )

    def test_options_of_the_gpus_are_the_same_on_every_rank_or_nothing_runs(self):
        self.run_ranks(
            """
            group = begin()
            x, out = T(np.arange(64) + rank), T(np.zeros(64 // size))
            first = lambda: group.allreduce([x], options())
            fails(TypeError, "windows_form", lambda: group.gpu.set_options({"windows_form": 64}))
            fails(fairway.InvalidArgument, "sometimes", lambda: group.gpu.set_options({"nccl": "sometimes"}))
            fails(fairway.InvalidArgument, "windows_from is a whole number", lambda: group.gpu.set_options({"windows_from": "64"}))
            group.gpu.set_options({"windows_from": 64 + rank, "table": f"/of/rank/{rank}"})
            fails(fairway.InvalidArgument, "rank 1 has set others than rank 0", first)
            expect(group.gpu.device is None and not group.gpu.reason)
            group.gpu.set_options({"windows_from": 64, "nccl": "never", "meet_from": 0})
            window = group.register_window(x)
            told = group.communicator.explain_stream("reduce_scatter", x, out, stream=group.gpu._own.stream)
            expect("in window" in told, told)
            group._reduce_scatter_base(out, x, options()).wait()
            group.barrier(options()).wait()
            same(out.numpy(), sum(np.arange(64) + other for other in range(size))[64 // size * rank : 64 // size * (rank + 1)])
            fails(fairway.InvalidArgument, "have decided", lambda: group.gpu.set_options({}))
            group.shutdown()
            """,
            2,
        )

    def test_a_rank_that_dies_is_a_typed_error_and_the_rest_go_on_with_their_gpus(self):
        self.run_ranks(
            """
            group = begin(600.0)
            x = T([1.0])
            group.allreduce([x], options()).wait()
            group.barrier(options()).wait()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            work = group.allreduce([x], options())
            error = fails(fairway.Error, "rank 1", lambda: work.wait(datetime.timedelta(seconds=60)))
            expect(error.rank == 1 and isinstance(error, RuntimeError), error)
            fails(RuntimeError, "rank 1", lambda: group.allreduce([x], options()))
            fails(RuntimeError, "rank 1", work.wait)
            expect(work.exception().rank == 1 and not work.is_success())
            rest = grouped(group.communicator.shrink())
            y = T([1.0])
            rest.allreduce([y], options()).wait()
            rest.barrier(options()).wait()
            expect(rest.gpu.device == rank and y.numpy()[0] == 2, y.numpy())
            group.gpu.drain()
            group.communicator._group.close()
            rest.allreduce([y], options()).wait()
            rest.barrier(options()).wait()
            expect(y.numpy()[0] == 4, y.numpy())
            rest.shutdown()
            """,
            3,
            killed=(1,),
        )

    def test_shrink_makes_a_default_group_that_uses_its_gpus_again(self):
        self.run_ranks(
            """
            from fairway.torch import gpu_path
            default = dist.distributed_c10d._get_default_group
            def summed():
                side = GpuSide(default().communicator, cuda)
                side.set_options(default().gpu.options)
                default().gpu = side
                expect(side.options == {"nccl": "never"}, side.options)
                expect("not decided" in gpu_path(), gpu_path())
                x = T([1.0])
                default().allreduce([x], options()).wait()
                default().barrier(options()).wait()
                expect(gpu_path() == f"GPU {rank}: kernels on a stream of the group", gpu_path())
                return x.numpy()[0]
            fairway.torch.init_process_group(datetime.timedelta(seconds=600), transports=["shm", "cuda"])
            fairway.torch.gpu_options(nccl="never")
            expect(summed() == 3)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            old = default()
            fails(RuntimeError, "rank 1", lambda: old.allreduce([T([1.0])], options()).wait(datetime.timedelta(seconds=60)))
            fairway.torch.shrink()
            expect(summed() == 2 and dist.get_world_size() == 2)
            fails(fairway.Error, "closed", lambda: old.gpu.all_reduce([T([1.0])], {"op": "sum"}, None))
            dist.destroy_process_group()
            """,
            3,
            killed=(1,),
        )

    def test_abort_ends_a_kernel_that_waits(self):
        self.run_ranks(
            """
            group = begin(600.0)
            x = T([1.0])
            group.allreduce([x], options()).wait()
            group.barrier(options()).wait()
            if rank == 0:
                work = group.allreduce([x], options())
                time.sleep(0.1)
                expect(not work.is_completed())
                group.abort()
                expect(work.is_completed())
            else:
                fails(fairway.Error, "has aborted", lambda: group.communicator.barrier())
            """,
            2,
        )

    def test_a_rank_that_is_late_is_named_at_the_groups_timeout(self):
        self.run_ranks(
            """
            group = begin(600.0)
            x = T([1.0])
            group.allreduce([x], options()).wait()
            given = options()
            given.timeout = datetime.timedelta(seconds=0.3)
            if rank == 0:
                work = group.allreduce([x], given)
                error = fails(fairway.DeadlineExceeded, "never entered", lambda: work.wait(datetime.timedelta(seconds=60)))
                expect(error.rank == 1, error)
            else:
                fails(fairway.Error, "rank 1", lambda: group.communicator.barrier())
            """,
            2,
        )

    def test_where_one_cannot_all_go_through_the_host_and_it_is_said_once(self):
        said = self.run_ranks(
            """
            warnings.simplefilter("always")
            group = begin()
            x = T([1.0])
            for _ in range(2):
                expect(not group.gpu.takes([x]))
            expect(group.gpu.device is None and group.gpu.reason == "ranks 0 and 1 share a GPU", group.gpu.reason)
            group.barrier(options()).wait()
            group.shutdown()
            # What use_gpu() itself refuses, on one rank.
            cuda.index, cuda.shown = (9 if rank == 1 else rank), ""
            x = T([1.0])
            group = grouped(fairway.Communicator.join(name="again", progress="caller", transports=["shm", "cuda"]))
            expect(not group.gpu.takes([x]) and "no GPU 9" in group.gpu.reason, group.gpu.reason)
            expect(group.communicator.all_reduce(np.ones(1))[0] == 2)
            cuda.index, cuda.capturing = rank, True
            group.gpu = GpuSide(group.communicator, cuda)
            fails(fairway.InvalidArgument, "cannot be captured", lambda: group.gpu.takes([x]))
            group.shutdown()
            """,
            2,
            {"SHOWN": "the only one"},
        )
        self.assertEqual(said[0].count("ranks 0 and 1 share a GPU"), 1)
        self.assertNotIn("share a GPU", said[1])


if __name__ == "__main__":
    unittest.main()
