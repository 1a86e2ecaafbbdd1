"""What a call of the backend "fairway" does on the host for GPU tensors: events, futures, graphs, and what it refuses."""

import unittest

from torch_ranks import TorchRanks


class TorchCalls(TorchRanks):
    def test_what_was_recorded_is_of_its_own_call_however_many_there_are(self):
        self.run_ranks(
            """
            group = begin()
            x, held = T([1.0]), T([1.0])
            for number in range(300):  # works that are dropped at once, and their events used again
                work = group.allreduce([x], options(op=dist.ReduceOp.MAX))
                if number % 3 == 0: work.wait()
            group.barrier(options()).wait()
            expect(work.is_completed() and x.numpy()[0] == 1)
            del work
            gate = cuda.gpu.hold(cuda.current.cuda_stream)
            first = group.allreduce([held], options())
            other = standin_torch.Stream(cuda.gpu)
            with cuda.stream(other):
                second = group.allreduce([x], options())  # behind the first: the group has one stream
                second.wait()
            expect(not first.is_completed() and not second.is_completed())
            gate.value = 1
            other.synchronize()
            expect(first.is_completed() and second.is_completed() and held.numpy()[0] == size and x.numpy()[0] == size)
            # In their turn behind operations on the host.
            later = group.communicator.all_reduce(np.ones(3), wait=False)
            group.allreduce([x], options()).wait()
            same(later.wait(), np.full(3, size))
            cuda.current.synchronize()
            expect(x.numpy()[0] == size * size)
            del first, second
            group.shutdown()
            """,
            2,
        )

    def test_a_call_takes_few_functions_of_python(self):
        """In a training step, whose caches are cold, each of them is microseconds."""
        self.run_ranks(
            """
            import fairway.process_group_side as side
            class Future:
                def __init__(self, gpus): pass
                def set_result(self, result): pass
            side._Future = Future
            group = begin()
            package, x, given = os.path.dirname(fairway.__file__), T([1.0]), dist.AllreduceOptions()
            def functions_of(call):
                seen = []
                sys.setprofile(lambda frame, event, _: event == "call" and seen.append(frame.f_code))
                result = call()
                sys.setprofile(None)
                return result, [code.co_name for code in seen if os.path.dirname(code.co_filename) == package]
            group.allreduce([x], given).wait()
            work, called = functions_of(lambda: group.allreduce([x], given))
            _, futures = functions_of(work.get_future)
            _, waits = functions_of(work.wait)
            expect(len(called) <= 15 and len(futures) <= 2 and len(waits) <= 4, called, futures, waits)
            group.shutdown()
            """,
            1,
        )

    def test_works_that_only_torchs_half_knows_can_be_waited_for(self):
        """However many others came since. Those that have ended hold no tensors."""
        self.run_ranks(
            """
            import gc, weakref
            group = begin()
            for make in (lambda: T([1.0]), lambda: torch.ones(1)):
                known, last = [], make()
                for _ in range(200):
                    x = make()
                    known.append((weakref.ref(group.allreduce([x], options())), weakref.ref(x)))
                del x
                group.allreduce([last], options()).wait()
                group.barrier(options()).wait()
                for _ in range(80): group.allreduce([last], options())
                gc.collect()
                expect(all(work() is not None for work, _ in known))
                expect(sum(x() is None for _, x in known) > 120, sum(x() is None for _, x in known))
                for work, _ in known: expect(work().is_completed() and work().wait())
                expect(not {id(work()) for work, _ in known} & {*group._kept, *group._ended})
            group.shutdown()
            """,
            1,
        )

    def test_threads_may_share_a_group(self):
        self.run_ranks(
            """
            import threading
            group = begin()
            mine = [T([1.0]) for _ in range(4)]
            group.allreduce([mine[0]], options()).wait()
            def calls(x):
                for _ in range(100):
                    group.allreduce([x], options()).wait()
            running = [threading.Thread(target=calls, args=(x,)) for x in mine]
            for thread in running: thread.start()
            for thread in running: thread.join()
            group.barrier(options()).wait()
            expect(all(x.numpy()[0] == 1 for x in mine) and len(group._kept) == 0)
            group.shutdown()
            """,
            1,
        )

    def test_a_graph_captures_a_call_and_each_launch_makes_it(self):
        self.run_ranks(
            """
            group = begin()
            x, y = T([1.0]), T([1.0])
            group.allreduce([x], options()).wait()
            group.barrier(options()).wait()
            import ctypes
            newest = group.gpu._own.newest
            stream, graph, ready = cuda.current.cuda_stream, ctypes.c_void_p(), ctypes.c_void_p()
            cuda.gpu.here("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(2))
            work = group.allreduce([y], options())
            expect(work.wait(datetime.timedelta(seconds=5)))  # does not wait for what only a launch does
            cuda.gpu.here("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
            expect(work.is_completed() and group.gpu._own.newest is newest and y.numpy()[0] == 1)
            cuda.gpu.here("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
            for number in range(3):
                cuda.gpu.here("cuGraphLaunch", ready, ctypes.c_void_p(stream))
                cuda.current.synchronize()
                expect(y.numpy()[0] == size ** (number + 1), y.numpy())
            group.allreduce([x], options()).wait()  # and without a graph
            group.barrier(options()).wait()
            expect(x.numpy()[0] == size * size)
            cuda.gpu.here("cuGraphExecDestroy", ready)
            group.shutdown()
            """,
            2,
        )

    def test_a_future_is_told_on_the_stream_that_its_work_runs_on(self):
        self.run_ranks(
            """
            import fairway.process_group_side as side
            told = []
            class Future:
                def __init__(self, gpus):
                    expect([(gpu.type, gpu.index) for gpu in gpus] == [("cuda", rank)], gpus)
                def set_result(self, result):
                    told.append((cuda.current, result))
                    if result == "fails": raise ValueError
            side._Future = Future
            group, callers = begin(), cuda.current
            x, y = T([1.0]), T([0.0])
            work = group.allreduce([x], options())
            expect(work.get_future() is work.get_future() and told == [(group.gpu._own.stream, [x])] and cuda.current is callers)
            message = group.send([x], 1) if rank == 0 else group.recv([y], 0)
            message.get_future()
            way = ("send", 1) if rank == 0 else ("receive", 0)
            expect(told[1] == (group.gpu._between[way].stream, [x if rank == 0 else y]))
            message.wait()
            work.wait()
            # PyTorch 2.x names streams by three numbers, and its C++ takes those.
            set_to, gpu = [], [rank]
            torch._C._cuda_getDevice = lambda: gpu[0]
            torch._C._cuda_getCurrentStream = lambda index: (7, index, 1)
            torch._C._cuda_setStream = lambda **ids: set_to.append(ids)
            own = group.gpu._own
            own._ids = {"stream_id": 5, "device_index": rank, "device_type": 1}
            own.future([x])
            ids = lambda number: {"stream_id": number, "device_index": rank, "device_type": 1}
            expect(set_to == [ids(5), ids(7)], set_to)
            fails(ValueError, "", lambda: own.future("fails"))
            expect(set_to[2:] == [ids(5), ids(7)], set_to)
            gpu[0] = rank + 1  # that stream would make its GPU the current one
            own.future([x])
            expect(len(set_to) == 4 and told[-1][0] is own.stream)
            group.barrier(options()).wait()
            group.shutdown()
            """,
            2,
        )

    def test_tensors_that_do_not_fit_are_refused_and_the_group_goes_on(self):
        self.run_ranks(
            """
            group = begin()
            x = T([1.0, 2.0])
            group.allreduce([x], options()).wait()
            no = fairway.InvalidArgument
            whole, short, counts = T(np.zeros(2 * size)), T(np.zeros(3)), T(np.zeros(2 * size), "int32")
            fails(no, "2 elements of torch.float32 and an output of 3", lambda: group._allgather_base(short, x, options()))
            fails(no, "torch.int32 are not 1 and 2 equal blocks", lambda: group._allgather_base(counts, x, options()))
            fails(no, "not 2 and 1 equal", lambda: group._reduce_scatter_base(x, short, options()))
            fails(no, "equal blocks", lambda: group.alltoall_base(short, T(np.zeros(3)), (), (), options()))
            fails(no, "torch.int32", lambda: group.alltoall_base(counts, whole, [3, 1], [3, 1] if rank == 0 else [1, 3], options()))
            fails(no, "none below 0", lambda: group.alltoall_base(T(np.zeros(4)), T(np.zeros(4)), [2, 2], [-1, 5], options()))
            fails(no, "dtype bool have no sum", lambda: group.allreduce([T([True], "bool")], options()))
            fails(no, "blocks of 3", lambda: group.gpu.scatter(short, whole, 0, None))
            works = [group.allreduce([x], options()), group._allgather_base(whole, x, options())]
            for work in works: work.wait()
            cuda.current.synchronize()
            same(whole.numpy(), [size * size, 2 * size * size] * size)
            group.shutdown()
            """,
            2,
        )


if __name__ == "__main__":
    unittest.main()
