"""The backend "fairway" of torch.distributed: each of its operations, DistributedDataParallel beside Gloo, ranks that die."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ranks

HAVE = importlib.util.find_spec("torch") is not None
BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench/train.py"

PRELUDE = """
import datetime, os, pickle, sys, time, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
import fairway.torch
torch.set_num_threads(1)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def begin(seconds=20):
    dist.init_process_group("fairway", timeout=datetime.timedelta(seconds=seconds))
def expect(condition, *what):
    if not condition:
        raise AssertionError(repr(what))
def same(a, b):
    expect(torch.equal(torch.as_tensor(a), torch.as_tensor(b)), a, b)
"""


@unittest.skipUnless(HAVE, "torch is not installed (apt-get install python3-torch)")
class Backend(unittest.TestCase):
    def ranks(self, script, size, environment=None, **options):
        port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ranks.free_port())}
        return ranks.run(self, script, size, {**port, **(environment or {})}, prelude=PRELUDE + ranks.FAILS, timeout=120, **options)

    def test_every_collective(self):
        script = """
            begin()
            T = lambda *values, dtype=torch.float32: torch.tensor(values, dtype=dtype)
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
                x = T(rank + 1, 2, dtype=dtype); dist.all_reduce(x); same(x, T(6, 6, dtype=dtype))
            x = T(rank, 5); dist.all_reduce(x, dist.ReduceOp.MAX); same(x, T(2, 5))
            x = T(rank + 1.0, 3); dist.all_reduce(x, dist.ReduceOp.AVG); same(x, T(2, 3))
            op = dist._make_nccl_premul_sum(rank + 0.5)
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
                x = torch.full((2,), 2, dtype=dtype)
                if isinstance(getattr(op, "__getstate__", lambda: None)(), tuple): dist.all_reduce(x, op); same(x, torch.full((2,), 9, dtype=dtype))
                else: fails(fairway.Unsupported, "multiply the tensor first", lambda: dist.all_reduce(x, op))  # 1.13
            x = torch.tensor([rank == 1, True]); dist.all_reduce(x, dist.ReduceOp.BAND); same(x, [False, True])
            x = torch.full((3, 4), float(rank)).t()[:, 1:]; dist.all_reduce(x); same(x, torch.full((4, 2), 3.0))  # no copy is asked of the caller
            x = torch.tensor([1 + 1j]); dist.all_reduce(x); same(x, [3 + 3j])
            x = torch.ones(2, requires_grad=True); dist.all_reduce(x); same(x.detach(), T(3, 3))
            x = T(rank); dist.broadcast(x, 1); same(x, T(1))
            x = T(rank); dist.reduce(x, 2); same(x, T(3) if rank == 2 else T(rank))
            out = [torch.zeros(2) for _ in range(size)]; dist.all_gather(out, T(rank, 7)); same(torch.stack(out)[:, 0], T(0, 1, 2))
            out = torch.zeros(6); dist.all_gather_into_tensor(out, T(rank, 7)); same(out, T(0, 7, 1, 7, 2, 7))
            out = [torch.zeros(1) for _ in range(size)] if rank == 1 else None; dist.gather(T(rank), out, 1)
            if rank == 1: same(torch.cat(out), T(0, 1, 2))
            out = torch.zeros(2); dist.scatter(out, [T(i, i) for i in range(size)] if rank == 0 else None, 0); same(out, T(rank, rank))
            out = torch.zeros(1); dist.reduce_scatter(out, [T(rank + i) for i in range(size)]); same(out, T(3 + 3 * rank))
            out = torch.zeros(2); dist.reduce_scatter_tensor(out, torch.arange(6.0)); same(out, 3 * torch.arange(6.0)[2 * rank : 2 * rank + 2])
            out = torch.zeros(3); dist.all_to_all_single(out, T(0, 1, 2) + 10 * rank); same(out, T(0, 10, 20) + rank)
            sent = torch.full((size * (rank + 1), 2), float(rank)); out = torch.zeros(6, 2)
            dist.all_to_all_single(out, sent, [1, 2, 3], [rank + 1] * size); same(out[:, 1], T(0, 1, 1, 2, 2, 2))
            out = [torch.zeros(i + 1) for i in range(size)]; dist.all_to_all(out, [torch.full((rank + 1,), float(i)) for i in range(size)])
            same(torch.cat(out), torch.full((6,), float(rank)))
            objects = [None] * size; dist.all_gather_object(objects, {"rank": rank, "long": "x" * rank}); expect([o["rank"] for o in objects] == [0, 1, 2])
            objects = [{"a": 1}, "b"] if rank == 0 else [None, None]; dist.broadcast_object_list(objects); expect(objects == [{"a": 1}, "b"])
            objects = [None]; dist.scatter_object_list(objects, ["0", "1", "2"] if rank == 0 else None); expect(objects == [str(rank)])
            objects = [None] * size if rank == 2 else None; dist.gather_object(rank, objects, 2); expect(rank != 2 or objects == [0, 1, 2])
            dist.barrier()
            fairway.torch.monitored_barrier(timeout=datetime.timedelta(seconds=10))
            # Two ranks; many at once.
            if rank == 0: dist.send(torch.arange(5), 1, tag=3)
            if rank == 1: x = torch.zeros(5, dtype=torch.int64); dist.recv(x, 0, tag=3); same(x, torch.arange(5))
            into = torch.zeros(1 << 18)
            ops = [dist.P2POp(dist.isend, torch.full((1 << 18,), float(rank)), (rank + 1) % size), dist.P2POp(dist.irecv, into, (rank - 1) % size)]
            for work in dist.batch_isend_irecv(ops): work.wait()
            same(into[-1], float((rank - 1) % size))
            # Work: futures, chains, results.
            works = [dist.all_reduce(torch.full((1000,), float(rank + i)), async_op=True) for i in range(20)]
            sums = torch.futures.collect_all([work.get_future().then(lambda f: f.value()[0][0].item()) for work in works]).wait()
            expect([f.value() for f in sums] == [3.0 + 3 * i for i in range(20)])
            expect(all(work.is_completed() and work.is_success() for work in works)); same(works[1].result()[0][0], 6.0)
            # Groups of some ranks.
            some = dist.new_group([0, 2])
            if rank != 1:
                x = T(rank); dist.all_reduce(x, group=some); same(x, T(2))
                expect(fairway.torch.communicator(some).size == 2)
            dist.barrier()
            dist.destroy_process_group()
        """
        self.ranks(script, 3)

    def test_ranks_meet_without_a_store(self):
        script = """
            fairway.torch.init_process_group(timeout=datetime.timedelta(seconds=20))
            x = torch.tensor([dist.get_rank()]); dist.all_reduce(x); same(x, [1])
            pair = dist.new_group([0, 1]); dist.all_reduce(x, group=pair); same(x, [2])
            dist.barrier(); dist.destroy_process_group()
        """
        ranks.run(self, script, 2, prelude=PRELUDE)

    def test_bad_calls_are_named(self):
        script = """
            begin()
            x = torch.ones(4)
            fails(fairway.Unsupported, "BXOR", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BXOR))
            fails(fairway.Unsupported, "sparse", lambda: dist.all_reduce(torch.eye(3).to_sparse()))
            fails(fairway.Unsupported, "names", lambda: dist.recv(x))
            fails(fairway.InvalidArgument, "rank 1", lambda: dist.all_gather([torch.ones(4), torch.ones(3)], x))
            fails(fairway.InvalidArgument, "split sizes", lambda: dist.all_to_all_single(x, x.clone(), [1, 2], [2, 2]))
            dist.all_reduce(x); same(x, torch.full((4,), 2.0))  # the group is whole
            if rank == 0: expect(fails(fairway.Truncated, "shorter", lambda: dist.send(torch.ones(8), 1)).rank == 1)
            else: expect(fails(fairway.Truncated, "takes 16", lambda: dist.recv(torch.ones(4), 0)).rank == 0)
            if rank == 0: dist.send(torch.ones(2), 1)
            else: expect(fails(fairway.InvalidArgument, "it sent 8 bytes", lambda: dist.recv(torch.ones(4), 0)).rank == 0)
            error = fails(fairway.InvalidArgument, "rank", lambda: dist.all_reduce(torch.ones(4 + rank)))
            expect(error.operation > 1 and isinstance(error, RuntimeError), error)
            copy = pickle.loads(pickle.dumps(error))
            expect(type(copy) is fairway.InvalidArgument and copy.rank == error.rank, copy)
            fails(fairway.InvalidArgument, "rank", lambda: dist.barrier())
            fairway.torch.shrink()
            dist.all_reduce(x); same(x, torch.full((4,), 4.0))
        """
        self.ranks(script, 2)

    def test_a_rank_that_does_not_come_is_named(self):
        script = """
            begin()
            work = dist.barrier(async_op=True); work.wait()
            if rank == 1: time.sleep(2); os._exit(0)
            late = dist.barrier(async_op=True)
            fails(fairway.TimedOut, "goes on", lambda: late.wait(datetime.timedelta(seconds=0.2)))
            expect(not late.is_completed() and late.exception() is None)
            dist.distributed_c10d._get_default_group().abort()
            expect(late.is_completed() and not late.is_success() and late.exception())
            fails(fairway.Closed, "closed", lambda: dist.barrier())
        """
        self.ranks(script, 2)
        with tempfile.NamedTemporaryFile() as file:
            script = f"""
                if rank != 0: sys.exit(0)
                store = dist.FileStore({file.name!r}, size)
                start = lambda: dist.init_process_group("fairway", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=2))
                expect(fails(fairway.TimedOut, "rank 1, 2 of 3", start).rank == 1)
            """
            self.ranks(script, 3)

    def test_sharded_optimizer_and_join_of_uneven_inputs(self):
        script = """
            from torch.distributed.optim import ZeroRedundancyOptimizer
            from torch.nn.parallel import DistributedDataParallel as DDP
            begin()
            torch.manual_seed(0)
            model = DDP(torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5)))
            plain = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))
            plain.load_state_dict(model.module.state_dict())
            sharded, whole = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01), torch.optim.Adam(plain.parameters(), lr=0.01)
            for i in range(5):
                data = torch.randn(size * 4, 20, generator=torch.Generator().manual_seed(i))
                for net, optimizer, part in ((model, sharded, data[rank * 4 : rank * 4 + 4]), (plain, whole, data)):
                    optimizer.zero_grad(); net(part).square().mean().backward(); optimizer.step()
            for a, b in zip(model.module.parameters(), plain.parameters()):
                expect(torch.allclose(a, b, atol=1e-5), (a - b).abs().max())
            with model.join():
                for _ in range(2 + rank): model(torch.ones(1, 20)).sum().backward()
            # A hook of the caller's, on the gradients' futures.
            hooked = DDP(torch.nn.Linear(4, 4, bias=False))
            hooked.register_comm_hook(None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] * 10))
            hooked(torch.ones(1, 4)).sum().backward()
            same(next(hooked.parameters()).grad, torch.full((4, 4), 10.0 * size))
            dist.barrier()
        """
        self.ranks(script, 2)

    def test_what_fsdp_calls(self):
        """Each call that FSDP makes of a backend, by the group's own names, on CPU tensors, beside what it must give."""
        script = """
            begin()
            group = dist.distributed_c10d._get_default_group()
            def blocks(of, count, dtype=torch.float32):  # what rank `of` has
                return torch.randn(count, generator=torch.Generator().manual_seed(of)).mul(8).round().to(dtype)
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8):
                for count in (1, 5, 4096, 100_003):
                    same_type = lambda of, n=count: blocks(of, n, dtype)
                    whole = torch.empty(count * size, dtype=dtype)
                    group._allgather_base(whole, same_type(rank)).wait()
                    same(whole, torch.cat([same_type(of) for of in range(size)]))
                    # As FSDP gathers: each rank's shard lies in the whole already.
                    within = torch.zeros(count * size, dtype=dtype); shard = within[rank * count : (rank + 1) * count]; shard.copy_(same_type(rank))
                    group._allgather_base(within, shard).wait(); same(within, whole)
                    if dtype in (torch.uint8, torch.float16, torch.bfloat16): continue  # sums wrap, or are rounded
                    sums = sum(same_type(of, count * size) for of in range(size))[rank * count : (rank + 1) * count]
                    out = torch.empty(count, dtype=dtype)
                    group._reduce_scatter_base(out, same_type(rank, count * size)).wait(); same(out, sums)
                    options = dist.ReduceScatterOptions(); options.reduceOp = dist.ReduceOp.MAX
                    group._reduce_scatter_base(out, same_type(rank, count * size), options).wait()
                    same(out, torch.stack([same_type(of, count * size) for of in range(size)]).amax(0)[rank * count : (rank + 1) * count])
            # Gradients in half the width: the mean, within a rounding of each step.
            for dtype, step in ((torch.float16, 2**-10), (torch.bfloat16, 2**-7)):
                out = torch.empty(1000, dtype=dtype); options = dist.ReduceScatterOptions(); options.reduceOp = dist.ReduceOp.AVG
                group._reduce_scatter_base(out, blocks(rank, 1000 * size, dtype), options).wait()
                mean = sum(blocks(of, 1000 * size).double() for of in range(size))[rank * 1000 : (rank + 1) * 1000] / size
                expect((out.double() - mean).abs().max() <= 64 * step, out)
            # Several of different sizes and types at once.
            outs = [torch.empty(n * size) for n in (3, 1000, 70_000)]
            group.allgather_into_tensor_coalesced(outs, [blocks(rank, n) for n in (3, 1000, 70_000)]).wait()
            for out, n in zip(outs, (3, 1000, 70_000)): same(out, torch.cat([blocks(of, n) for of in range(size)]))
            outs = [torch.empty(n) for n in (3, 1000, 70_000)]
            group.reduce_scatter_tensor_coalesced(outs, [blocks(rank, n * size) for n in (3, 1000, 70_000)]).wait()
            for out, n in zip(outs, (3, 1000, 70_000)): same(out, sum(blocks(of, n * size) for of in range(size))[rank * n : (rank + 1) * n])
            lists = [[torch.empty(3), torch.empty(8)] for _ in range(size)]
            group.allgather_coalesced(lists, [blocks(rank, 3), blocks(rank, 8)]).wait()
            for of in range(size): same(lists[of][0], blocks(of, 3)); same(lists[of][1], blocks(of, 8))
            # Modules are made equal, and gradients' norms summed.
            x = blocks(rank, 7); group.broadcast([x], dist.BroadcastOptions()).wait(); same(x, blocks(0, 7))
            x = torch.tensor(rank + 1.0); group.allreduce([x]).wait(); same(x, torch.tensor(float(sum(range(1, size + 1)))))
            group.barrier().wait()
            dist.destroy_process_group()
        """
        for size in (2, 3):
            with self.subTest(size=size):
                self.ranks(script, size)

    def test_sharded_training_by_the_calls_of_fsdp(self):
        """Parameters, gradients and the optimizer in shards, as FSDP keeps them; beside the whole model on one rank."""
        script = """
            begin()
            def made():
                torch.manual_seed(3)
                return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5))
            net, plain = made(), made()
            parameters = list(net.parameters())
            total = sum(p.numel() for p in parameters)
            each = -(-total // size)
            flat = torch.cat([p.detach().reshape(-1) for p in parameters] + [torch.zeros(each * size - total)])
            shard = flat[rank * each : (rank + 1) * each].clone().requires_grad_()
            sharded, whole = torch.optim.Adam([shard], lr=0.01), torch.optim.Adam(plain.parameters(), lr=0.01)
            del flat
            for i in range(6):
                full = torch.empty(each * size); dist.all_gather_into_tensor(full, shard.detach())
                for p, part in zip(parameters, full[:total].split([p.numel() for p in parameters])): p.data = part.view(p.shape); p.grad = None
                data = torch.randn(size * 4, 20, generator=torch.Generator().manual_seed(i))
                net(data[rank * 4 : rank * 4 + 4]).square().mean().backward()
                grads = torch.cat([p.grad.reshape(-1) for p in parameters] + [torch.zeros(each * size - total)])
                shard.grad = torch.empty(each); dist.reduce_scatter_tensor(shard.grad, grads, op=dist.ReduceOp.AVG)
                sharded.step()
                whole.zero_grad(); plain(data).square().mean().backward(); whole.step()
            full = torch.empty(each * size); dist.all_gather_into_tensor(full, shard.detach())
            reference = torch.cat([p.detach().reshape(-1) for p in plain.parameters()])
            expect(torch.allclose(full[:total], reference, atol=1e-5), (full[:total] - reference).abs().max())
            dist.barrier(); dist.destroy_process_group()
        """
        self.ranks(script, 3)

    def test_fsdp_itself_or_why_not(self):
        """On CPUs it is PyTorch that refuses, where it does: never this backend."""
        script = """
            begin()
            try:
                from torch.distributed.fsdp import FullyShardedDataParallel
            except ValueError as error:  # Debian's 1.13 under Python 3.11
                expect("mutable default" in str(error), error)
                print("PyTorch's own: it cannot import FSDP:", error); sys.exit(0)
            where = {} if torch.__version__.startswith("1.") else {"device_id": torch.device("cpu")}
            torch.manual_seed(1)
            net = torch.nn.Linear(20, 5); plain = torch.nn.Linear(20, 5); plain.load_state_dict(net.state_dict())
            data = torch.randn(size * 4, 20, generator=torch.Generator().manual_seed(1))
            try:
                net = FullyShardedDataParallel(net, **where)
                net(data[rank * 4 : rank * 4 + 4])
            except (RuntimeError, AssertionError) as error:  # 1.13
                expect("does not support CPU only execution" in str(error) or "not compiled with CUDA" in str(error), error)
                print("PyTorch's own:", error); sys.exit(0)
            optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (net, plain)]
            for _ in range(3):
                for one, optimizer, part in zip((net, plain), optimizers, (data[rank * 4 : rank * 4 + 4], data)):
                    optimizer.zero_grad(); one(part).square().mean().backward(); optimizer.step()
            with FullyShardedDataParallel.summon_full_params(net):
                expect(torch.allclose(net.module.weight, plain.weight, atol=1e-5), net.module.weight, plain.weight)
            dist.barrier()
        """
        said = self.ranks(script, 2)
        if all("PyTorch's own:" in one for one in said):
            self.skipTest(said[0].strip().splitlines()[-1])

    def test_tensors_of_a_gpu_go_through_the_host(self):
        import torch

        if not torch.cuda.is_available():
            self.skipTest("no GPU that torch reaches")
        script = """
            begin()
            on = lambda *shape, value=0.0: torch.full(shape, value, device="cuda")
            x = on(1000, value=rank + 1.0); dist.all_reduce(x); same(x[0].cpu(), 3.0)
            out = on(2, 4); dist.all_gather_into_tensor(out, on(4, value=float(rank))); same(out[1].cpu(), torch.ones(4))
            value = dist.all_reduce(on(1000, value=2.0), async_op=True).get_future().wait(); same(value[0][0].cpu(), 4.0)
            into = on(1 << 20)
            ops = [dist.P2POp(dist.isend, on(1 << 20, value=float(rank)), 1 - rank), dist.P2POp(dist.irecv, into, 1 - rank)]
            for work in dist.batch_isend_irecv(ops): work.wait()
            same(into[-1].cpu(), 1.0 - rank)
            net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8, bias=False).cuda())
            net(on(2, 64, value=rank + 1.0)).sum().backward()
            same(next(net.parameters()).grad.cpu(), torch.full((8, 64), 3.0))
            dist.barrier()
        """
        self.ranks(script, 2)

    def test_parameters_of_a_gpu_are_sharded(self):
        import torch

        if not torch.cuda.is_available() or not importlib.util.find_spec("torch.distributed.fsdp"):
            self.skipTest("no GPU that torch reaches, or a torch without FSDP")
        script = """
            from torch.distributed.fsdp import FullyShardedDataParallel
            begin()
            torch.cuda.set_device(rank % torch.cuda.device_count())
            made = lambda: torch.nn.Sequential(*(layer for _ in range(3) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())), torch.nn.Linear(64, 3)).cuda()
            def trained(net, part):
                optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
                for i in range(5):
                    data = torch.randn(8, 64, generator=torch.Generator().manual_seed(i)).cuda()
                    optimizer.zero_grad(); net(data[part]).square().mean().backward(); optimizer.step()
            mine = slice(rank * 4, rank * 4 + 4)
            torch.manual_seed(0); plain = made(); begun = plain.state_dict()
            begun = {name: value.clone() for name, value in begun.items()}
            trained(plain, slice(0, 8))
            def expect_like_plain(parameters, what):
                for ours, theirs in zip(parameters, plain.parameters()):
                    expect(torch.allclose(ours, theirs, atol=1e-4), what, (ours - theirs).abs().max())
            net = made(); net.load_state_dict(begun)
            net = FullyShardedDataParallel(net, device_id=torch.cuda.current_device(), use_orig_params=True)
            trained(net, mine)
            with FullyShardedDataParallel.summon_full_params(net):
                expect_like_plain(list(net.parameters()), "FullyShardedDataParallel")
            try:
                from torch.distributed.fsdp import fully_shard  # PyTorch 2.6 and newer
            except ImportError:
                fully_shard = None
            if fully_shard:
                from torch.distributed.device_mesh import init_device_mesh
                net = made(); net.load_state_dict(begun)
                mesh = init_device_mesh("cuda", (size,))
                for layer in net:
                    if list(layer.parameters()): fully_shard(layer, mesh=mesh)
                fully_shard(net, mesh=mesh)
                expect(net[0].weight.to_local().shape[0] == 64 // size)
                trained(net, mine)
                expect_like_plain([parameter.full_tensor() for parameter in net.parameters()], "fully_shard")
            dist.barrier(); dist.destroy_process_group()
        """
        self.ranks(script, 2)

    def test_training_beside_gloo_and_after_a_death(self):
        def bench(*arguments):
            done = subprocess.run([sys.executable, BENCH, "--json", *arguments], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        reports = bench("--ranks", "4", "--steps", "6", "--rounds", "1")
        for ours, theirs in zip(reports["fairway"][0]["losses"], reports["gloo"][0]["losses"]):
            self.assertAlmostEqual(ours, theirs, places=4)
        report = bench("--ranks", "4", "--steps", "6", "--kill", "2")["fairway"][0]
        self.assertEqual((report["ranks"], report["recovery"]["rank"], len(report["losses"])), (3, 2, 6))
        self.assertLess(report["losses"][-1], report["losses"][0])


if __name__ == "__main__":
    unittest.main()
