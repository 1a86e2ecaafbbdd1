"""The backend "fairway" on GPU tensors of real GPUs, one for each rank; skipped where there are fewer than two.

    PYTHONPATH=build/release/python python3 tests/process/python/test_torch_gpus.py
"""

import importlib.util
import os
import subprocess
import sys
import unittest

import ranks

PRELUDE = """
import datetime, gc, os, signal, sys, time, warnings
import torch, torch.distributed as dist
import fairway, fairway.torch
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
warnings.filterwarnings("error", message="fairway: ")  # that collectives go through the host
torch.cuda.set_device(rank)
def begin(seconds=60, backend="fairway"):
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds))
def by_way(group=None):  # WAY: of use_gpu()'s nccl
    fairway.torch.gpu_options(group, nccl=os.environ["WAY"])
    return group
def expect(condition, *what):
    if not condition:
        raise AssertionError(repr(what))
def same(a, b):
    expect(torch.equal(a, b.to(a.device, a.dtype)), a, b)
def kernels():
    path = fairway.torch.gpu_path()
    expect(path.startswith(f"GPU {rank}: kernels"), path)
"""


def gpus():
    """How many torch sees; asked of another process, since one that has used CUDA must not fork."""
    if importlib.util.find_spec("torch") is None:
        return 0
    return int(subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], capture_output=True, text=True).stdout or 0)


GPUS = gpus()


@unittest.skipIf(GPUS < 2, f"torch sees {GPUS} GPUs here, and two are needed")
class TorchGpus(unittest.TestCase):
    def ranks(self, script, way="never", **options):
        size = min(GPUS, int(os.environ.get("RANKS", "8")))
        port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ranks.free_port()), "WAY": way}
        said = ranks.run(self, script, size, port, prelude=PRELUDE, timeout=180, **options)
        print("\n" + said[0].strip(), end=" ", flush=True)

    def test_every_collective(self):
        self.ranks("""
            begin()
            makes = lambda other, shape, dtype: (torch.arange(torch.Size(shape).numel(), device="cuda") % 13 + other).reshape(shape).to(dtype)
            checked = 0
            for shape in ((1,), (3, 5), (size, 1000), (size, 300_007), (size * 4, 250_000)):
                for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
                    every = [makes(other, shape, dtype) for other in range(size)]
                    whole = torch.stack([one.double() for one in every])
                    reduced = {"SUM": whole.sum(0), "MAX": whole.amax(0), "MIN": whole.amin(0)}
                    if dtype.is_floating_point:
                        reduced["AVG"] = whole.mean(0)
                    for op, wanted in reduced.items():
                        if dtype in (torch.int8, torch.uint8) and op == "SUM":
                            wanted = wanted.long()
                        if op == "AVG":
                            wanted = (whole.sum(0).float() if dtype != torch.float64 else whole.sum(0)) / size
                        x = every[rank].clone(); dist.all_reduce(x, getattr(dist.ReduceOp, op)); same(x, wanted)
                        if shape[0] % size == 0:
                            out = torch.empty([shape[0] // size, *shape[1:]], dtype=dtype, device="cuda")
                            dist.reduce_scatter_tensor(out, every[rank], getattr(dist.ReduceOp, op))
                            same(out, wanted.chunk(size)[rank])
                            out.zero_(); dist.reduce_scatter(out, list(every[rank].chunk(size)), getattr(dist.ReduceOp, op)); same(out, wanted.chunk(size)[rank])
                    x = every[rank].clone(); dist.broadcast(x, 1); same(x, every[1])
                    out = torch.empty([size * shape[0], *shape[1:]], dtype=dtype, device="cuda")
                    dist.all_gather_into_tensor(out, every[rank]); same(out, torch.cat(every))
                    parts = [torch.empty_like(x) for _ in range(size)]
                    dist.all_gather(parts, every[rank])
                    for other in range(size): same(parts[other], every[other])
                    if shape[0] % size == 0:
                        out = torch.empty_like(every[rank]); dist.all_to_all_single(out, every[rank])
                        same(out, torch.cat([one.chunk(size)[rank] for one in every]))
                    checked += 1
            # Views that are not contiguous, complex numbers, truths, nothing at all, several at once.
            x = torch.full((3, 4), float(rank), device="cuda").t()[:, 1:]; dist.all_reduce(x); same(x, torch.full((4, 2), float(sum(range(size)))))
            x = torch.tensor([1 + 1j], device="cuda"); dist.all_reduce(x); same(x, size * torch.tensor([1 + 1j]))
            x = torch.tensor([rank == 1, True], device="cuda"); dist.all_reduce(x, dist.ReduceOp.BAND); same(x, torch.tensor([False, True]))
            x = torch.empty(0, device="cuda"); dist.all_reduce(x)
            works = [dist.all_reduce(torch.ones(1 << 20, device="cuda"), async_op=True) for _ in range(50)]
            for work in works: work.wait(); expect(work.result()[0][0].item() == size)
            kernels()
            # Roots, split sizes and lists, of few and many elements.
            for count in (5, 30_011, 3_000_017):
                for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
                    every = [makes(other, (count,), dtype) for other in range(size)]
                    for root in range(size):
                        if dtype not in (torch.uint8, torch.bfloat16):
                            x = every[rank].clone(); dist.reduce(x, root)
                            if rank == root: same(x, sum(every))
                        parts = [torch.zeros_like(x) for x in every] if rank == root else None
                        dist.gather(every[rank], parts, root)
                        if rank == root:
                            for other in range(size): same(parts[other], every[other])
                        out = torch.zeros_like(every[0]); dist.scatter(out, [one + 1 for one in every] if rank == root else None, root); same(out, every[rank] + 1)
                    amount = lambda a, b: count * ((a * 3 + b) % 4) // 3  # from a to b; some have nothing
                    sent, got = [amount(rank, other) for other in range(size)], [amount(other, rank) for other in range(size)]
                    x = torch.cat([makes(rank * 8 + other, (amount(rank, other),), dtype) for other in range(size)])
                    wanted = [makes(other * 8 + rank, (amount(other, rank),), dtype) for other in range(size)]
                    out = torch.zeros(sum(got), dtype=dtype, device="cuda"); dist.all_to_all_single(out, x, got, sent); same(out, torch.cat(wanted))
                    parts = [torch.zeros_like(one) for one in wanted]
                    dist.all_to_all(parts, list(x.split(sent)))
                    for one, want in zip(parts, wanted): same(one, want)
            # Inputs that are multiplied, and f8 beside float32, rounded once and saturated.
            if hasattr(dist, "_make_nccl_premul_sum"):
                x = torch.full((1000,), 2.0, device="cuda"); dist.all_reduce(x, dist._make_nccl_premul_sum(rank + 0.5))
                same(x, torch.full((1000,), 2 * (sum(range(size)) + size / 2)))
            for dtype in (getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)):
                most = torch.finfo(dtype).max
                for count in (37, 1_000_003):
                    every = [((torch.arange(count, device="cuda") * 7 + other * 11) % 300 - 150).float().mul(1.7).to(dtype) for other in range(size)]
                    wanted = torch.zeros(count, device="cuda")
                    for one in every: wanted += one.float()
                    x = every[rank].clone(); dist.all_reduce(x)
                    same(x.float(), wanted.clamp(-most, most).to(dtype).float())
            # Messages: around a ring, both ways at once, and with the neighbour alone.
            for count in (1, 1000, 5_000_003):
                x, back, forth = makes(rank, (count,), torch.float32), torch.zeros(count, device="cuda"), torch.zeros(count, device="cuda")
                after, before = (rank + 1) % size, (rank - 1) % size
                ops = [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, back, before)]
                if size > 2:
                    ops += [dist.P2POp(dist.isend, x + 1, before), dist.P2POp(dist.irecv, forth, after)]
                for work in dist.batch_isend_irecv(ops): work.wait()
                same(back, makes(before, (count,), torch.float32))
                if size > 2: same(forth, makes(after, (count,), torch.float32) + 1)
                if rank == 0: dist.send(x, 1)
                if rank == 1: dist.recv(back, 0); same(back, makes(0, (count,), torch.float32))
            kernels()
            dist.barrier()
            dist.destroy_process_group()
            print(f"{checked} shapes and types by {size} GPUs: right")
        """)

    def test_a_tensor_that_all_ranks_show_is_read_where_it_is(self):
        self.ranks("""
            begin()
            block = 16_000_000  # floats: enough to be read, and no multiple of anything
            buffer = torch.empty(2 * size * block + 5, device="cuda")
            window = fairway.torch.register_window(buffer)
            expect(window.nbytes == buffer.numel() * 4)
            kernels()
            x, y = buffer[3 : 3 + size * block], buffer[4 + size * block : 4 + 2 * size * block]
            makes = lambda other: (torch.arange(size * block, device="cuda") % 1009 + other).float()
            total = sum(makes(other) for other in range(size))
            part = slice(rank * block, (rank + 1) * block)
            for what, arrays in {"all_reduce": [x], "reduce_scatter": [x, y[:block]], "all_gather": [x[:block], y], "all_to_all": [x, y], "broadcast": [x]}.items():
                told = fairway.torch.communicator().explain_stream(what, *arrays)
                expect("reads it in window" in told, told)
            for _ in range(3):
                x.copy_(makes(rank)); dist.all_reduce(x); same(x, total)
                x.copy_(makes(rank)); out = torch.empty(block, device="cuda"); dist.reduce_scatter_tensor(out, x); same(out, total[part])
                y.zero_(); dist.all_gather_into_tensor(y, x[:block])
                same(y, torch.cat([makes(other)[:block] for other in range(size)]))
                dist.all_to_all_single(y, x); same(y, torch.cat([makes(other)[part] for other in range(size)]))
                x.copy_(makes(rank)); dist.broadcast(x, size - 1); same(x, makes(size - 1))
            dist.barrier()
            window.deregister()
            x.copy_(makes(rank)); dist.all_reduce(x); same(x, total)
            dist.barrier()
            dist.destroy_process_group()
            print(f"a window of {buffer.numel() * 4 >> 20} MiB: right")
        """)

    def test_streams_memory_and_futures(self):
        self.ranks("""
            begin()
            dist.all_reduce(torch.ones(1, device="cuda"))
            # What was computed before is what is summed; memory that is freed early is given to nobody before.
            for number in range(200):
                big = torch.full((1 << 20,), float(number + rank), device="cuda")
                for _ in range(3): big = big * 1.0
                work = dist.all_reduce(big, async_op=True)
                result = big.view(-1)[:4]
                expected = sum(float(number + other) for other in range(size))
                work.wait()
                copied = result.clone()
                del big, result, work
                junk = torch.full((1 << 20,), -1.0, device="cuda")
                expect((copied == expected).all().item(), number, copied, expected)
            x = torch.full((1 << 22,), float(rank), device="cuda")
            work = dist.all_reduce(x, async_op=True)
            told = work.get_future().then(lambda f: f.value()[0] * 2)
            expect((told.wait() == 2.0 * sum(range(size))).all().item())
            other = torch.cuda.Stream()
            with torch.cuda.stream(other):
                y = torch.ones(1000, device="cuda"); dist.all_reduce(y); expect((y == size).all().item())
            torch.cuda._sleep(int(2e9)); dist.barrier()
            expect(torch.cuda.current_stream().query(), "a barrier ends behind what the GPU has to do")
            dist.destroy_process_group()
            print("streams, freed memory, futures, barrier: right")
        """)

    def test_a_graph_is_captured_and_launched(self):
        self.ranks("""
            begin()
            x, out = torch.zeros(5000, device="cuda"), torch.zeros(5000 * size, device="cuda")
            dist.all_reduce(x); dist.all_gather_into_tensor(out, x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = x + rank
                dist.all_reduce(y)
                dist.all_gather_into_tensor(out, y * 1)
                z = out.sum()
            for number in range(20):
                x.fill_(float(number))
                graph.replay()
                wanted = sum(number + other for other in range(size))
                same(y, torch.full((5000,), float(wanted)))
                expect(z.item() == float(torch.full((5000 * size,), float(wanted), device="cuda").sum()), number, z.item())
                dist.all_reduce(torch.ones(3, device="cuda"))  # between, no graph
            torch.cuda.synchronize()
            kernels()
            dist.destroy_process_group()
            print("a graph of two collectives, launched 20 times: right")
        """)

    def test_distributed_data_parallel_loses_as_without(self):
        self.ranks("""
            begin()
            made = lambda: torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
            torch.manual_seed(1); alone = made()
            torch.manual_seed(1); net = torch.nn.parallel.DistributedDataParallel(made(), device_ids=[rank], bucket_cap_mb=0.1)
            one, all_ = torch.optim.SGD(alone.parameters(), lr=0.1), torch.optim.SGD(net.parameters(), lr=0.1)
            apart = 0.0
            for i in range(30):
                data = torch.randn(8 * size, 64, generator=torch.Generator().manual_seed(i)).cuda()
                all_.zero_grad(); loss = net(data[rank::size]).pow(2).mean(); loss.backward(); all_.step()
                one.zero_grad(); wanted = alone(data).pow(2).mean(); wanted.backward(); one.step()
                mean = loss.detach().clone(); dist.all_reduce(mean, dist.ReduceOp.AVG)
                apart = max(apart, (mean - wanted).abs().item())
            expect(apart < 1e-4, apart)
            kernels()
            dist.destroy_process_group()
            print(f"30 steps of DistributedDataParallel: losses differ by {apart:.1e} at most")
        """)

    def test_fully_sharded_data_parallel_loses_as_without(self):
        self.ranks("""
            from torch.distributed.fsdp import FullyShardedDataParallel
            begin()
            made = lambda: torch.nn.Sequential(*(layer for _ in range(3) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())), torch.nn.Linear(64, 8)).cuda()
            def losses(net, part):
                optimizer, seen = torch.optim.Adam(net.parameters(), lr=1e-2), []
                for i in range(8):
                    data = torch.randn(8 * size, 64, generator=torch.Generator().manual_seed(i)).cuda()
                    optimizer.zero_grad(); loss = net(data[part]).pow(2).mean(); loss.backward(); optimizer.step()
                    mean = loss.detach().clone(); dist.all_reduce(mean, dist.ReduceOp.AVG); seen.append(mean.item())
                return seen
            torch.manual_seed(1); wanted = losses(made(), slice(None))
            torch.manual_seed(1); sharded = losses(FullyShardedDataParallel(made(), device_id=rank, use_orig_params=True), slice(rank, None, size))
            apart = max(abs(a - b) for a, b in zip(wanted, sharded))
            expect(apart < 1e-3, apart, wanted, sharded)
            kernels()
            dist.destroy_process_group()
            print(f"8 steps of FullyShardedDataParallel: losses differ by {apart:.1e} at most")
        """)

    def dies(self, way):
        self.ranks(
            """
            begin(seconds=120)
            by_way()
            x = torch.ones(1000, device="cuda")
            dist.all_reduce(x); dist.barrier()
            if rank == 1: os.kill(os.getpid(), signal.SIGKILL)
            began = time.monotonic()
            try:
                for _ in range(100_000):
                    dist.all_reduce(x); torch.cuda.current_stream().synchronize()
                expect(False, "no error")
            except fairway.Error as error:
                expect(error.rank == 1 and isinstance(error, RuntimeError), error)
            took = time.monotonic() - began
            expect(took < 30, took)
            fairway.torch.shrink()
            y = torch.ones(1000, device="cuda"); dist.all_reduce(y); dist.barrier()
            expect((y == size - 1).all().item() and dist.get_world_size() == size - 1)
            if size > 2: expect(fairway.torch.gpu_path().startswith("GPU"), fairway.torch.gpu_path())
            dist.destroy_process_group()
            print(f"a dead rank was named after {took:.2f} s, and {size - 1} went on")
            """,
            way,
            killed=(1,),
        )

    def test_a_rank_that_dies_is_named_and_the_rest_go_on(self):
        self.dies("never")

    def test_by_nccl_a_rank_that_dies_is_named_and_the_rest_go_on(self):
        self.dies("always")

    def late(self, way, count, seconds=3):
        self.ranks(
            f"""
            begin()
            late = by_way(dist.new_group(timeout=datetime.timedelta(seconds={seconds})))
            x = torch.ones({count}, device="cuda")
            dist.all_reduce(x, group=late); dist.barrier(group=late)
            said = fairway.torch.communicator(late).explain_stream("all_reduce", x)
            expect(("by NCCL" in said) == ({way!r} == "always"), said)
            expect(("one warp waits" in said) == ({way!r} != "always" and {count} >= 1 << 18), said)
            if rank == 1: time.sleep({seconds} + 3)
            try:
                work = dist.all_reduce(x, group=late, async_op=True)
                work.wait(datetime.timedelta(seconds=60))
                expect(False, "no error")
            except fairway.Error as error:
                expect(error.rank == 1, error)
            expect(torch.ones(3, device="cuda").sum().item() == 3)  # the GPU can be used
            print("a late rank was named")
            """,
            way,
        )

    def test_a_late_rank_is_named_at_the_timeout(self):
        self.late("never", 1000)

    def test_before_a_long_one_a_late_rank_is_named_at_the_timeout(self):
        self.late("never", 1 << 20)

    def test_by_nccl_a_late_rank_is_named_at_the_timeout(self):
        self.late("always", 1000, seconds=16)  # of which NCCL may take half to make connections


if __name__ == "__main__":
    unittest.main(verbosity=2)
