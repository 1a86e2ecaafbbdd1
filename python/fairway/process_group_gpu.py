"""The GPU side of the backend "fairway": collectives of CUDA tensors as kernels of the communicator, on a stream of the group.

All ranks decide together, at the first collective of GPU tensors, whether their GPUs can be used; where they cannot, tensors go
through the host, and the group says so once.
"""

import hashlib
import json
import os
import threading
import time
import warnings

import torch

from . import errors, launch
from .communicator_gpu import gpu_options
from .process_group_work import FairwayWork, as_runtime_error

_MOST_RANKS = 8
_RECORD_BYTES = 512
STAGE = "FAIRWAY_TORCH_STAGE"  # an environment variable: if it is set on any rank, all ranks stage


def identity(cuda, index):
    """What names this GPU on its host, or ''."""
    properties = cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        return str(uuid)
    bus = getattr(properties, "pci_bus_id", None)
    return "" if bus is None else f"{getattr(properties, 'pci_domain_id', 0)}:{bus}:{getattr(properties, 'pci_device_id', 0)}"


def why_stage(ranks):
    """Why these ranks do not use their GPUs together, in words; '' if nothing speaks against it.

    `ranks`: of each rank, in order, {"host", "gpu", "stage"}: the same list at every rank, and so the same answer.
    """
    if len(ranks) > _MOST_RANKS:
        return f"there are {len(ranks)} ranks, and at most {_MOST_RANKS} use each other's GPUs"
    seen = {}
    for rank, said in enumerate(ranks):
        if said["stage"]:
            return f"rank {rank} has {STAGE} set"
        if said["host"] != ranks[0]["host"]:
            return f"rank {rank} is on another host than rank 0"
        if said["gpu"] and said["gpu"] in seen:
            return f"ranks {seen[said['gpu']]} and {rank} share a GPU"
        seen[said["gpu"]] = rank
    return ""


def _digest(options):
    """The same for the same options. Where a file lies may differ between ranks."""
    said = sorted((name, repr(value)) for name, value in options.items() if name not in ("nccl_library", "table"))
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def _is_plain(tensor):
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


class GpuSide:
    """Of one group. `cuda` is torch.cuda. Threads may share it; what they enqueue runs in the order of the calls.

    All collectives run on one stream of the group's, behind what the caller's current stream has then. So a group needs one of
    its communicator's places, and one for each graph that its collectives are captured into. Messages to one rank, and those
    from it, have a stream each: programs start them one by one, and two ranks may both send first.
    """

    def __init__(self, communicator, cuda):
        self._communicator, self._cuda = communicator, cuda
        self._lock = threading.Lock()  # one collective enqueues at a time
        self._stream = None
        self._between = {}  # the streams of messages, by what and with whom
        self._last = {}  # of each stream
        self.device = None  # the GPU's index, once it is used
        self.reason = ""  # why tensors go through the host, once that is known
        self.options = {}  # of Communicator.use_gpu(): set_options()

    def set_options(self, options):
        """Those of Communicator.use_gpu(), until the ranks decide."""
        gpu_options(**options)
        with self._lock:
            if self.device is not None or self.reason:
                raise errors._of("invalid_argument", "the ranks have decided how the group's GPU tensors travel: set options before its first collective of them")
            self.options = options

    def takes(self, tensors):
        """Whether a collective of these tensors runs on the GPU. The first time it is itself a collective."""
        if not tensors or any(tensor.device.type != "cuda" for tensor in tensors):
            return False
        if self.device is None and not self.reason:
            with self._lock:
                if self.device is None and not self.reason:
                    self._decide(self._index(tensors[0]))
        if self.reason:
            return False
        for tensor in tensors:
            if self._index(tensor) != self.device:
                told = f"a tensor is on {tensor.device}, and this group uses GPU {self.device}: a group uses one GPU of each rank"
                raise errors._of("invalid_argument", told)
        return True

    def _index(self, tensor):
        return self._cuda.current_device() if tensor.device.index is None else tensor.device.index

    def _decide(self, index):
        if self._cuda.is_current_stream_capturing():
            raise errors._of("invalid_argument", "a group's first collective of GPU tensors cannot be captured into a graph: call one before")
        group = self._communicator
        said = {"host": launch.host_id(), "gpu": identity(self._cuda, index), "stage": bool(os.environ.get(STAGE)), "options": _digest(self.options)}
        every = bytearray(_RECORD_BYTES * group.size)
        try:
            group.all_gather(bytearray(json.dumps(said).encode().ljust(_RECORD_BYTES)), every)
        except errors.Error as failed:
            raise as_runtime_error(failed)
        ranks = [json.loads(every[i : i + _RECORD_BYTES]) for i in range(0, len(every), _RECORD_BYTES)]
        for rank, other in enumerate(ranks):
            if other["options"] != ranks[0]["options"]:
                raise errors._of("invalid_argument", f"gpu_options: rank {rank} has set others than rank 0: every rank sets the same")
        reason = why_stage(ranks)
        if not reason:
            try:
                group.use_gpu(index, **self.options)
            except errors.Error as failed:  # on every rank
                if group.failure is not None:
                    raise as_runtime_error(failed)
                reason = str(failed)
        if reason:
            self.reason = reason
            if group.rank == 0:
                warnings.warn(f"fairway: collectives of GPU tensors go through the host, which is slow: {reason}", RuntimeWarning, stacklevel=4)
            return
        self._stream = self._cuda.Stream(device=index)
        self.device = index

    # ---- collectives: each gives the event behind it, and whether a graph has captured that ----

    def all_reduce(self, tensors, reduction, limit):
        return self._in_place("all_reduce", tensors, limit, **reduction)

    def reduce(self, tensor, root, reduction, limit):
        return self._in_place("reduce", [tensor], limit, root=root, **reduction)

    def broadcast(self, tensors, root, limit):
        return self._in_place("broadcast", tensors, limit, root=root)

    def _in_place(self, what, tensors, limit, **options):
        plain = [self._source(tensor) for tensor in tensors]
        back = [(tensor, copy) for tensor, copy in zip(tensors, plain) if not _is_plain(tensor)]
        return self._run([(what, (copy,), options) for copy in plain], plain, limit, back)

    def all_gather(self, outputs, inputs, limit):
        return self._blocks("all_gather", outputs, inputs, limit)

    def reduce_scatter(self, outputs, inputs, reduction, limit):
        return self._blocks("reduce_scatter", outputs, inputs, limit, **reduction)

    def all_to_all(self, output, tensor, limit):
        return self._blocks("all_to_all", [output], [tensor], limit)

    def all_to_allv(self, output, tensor, counts, limit):
        return self._blocks("all_to_allv", [output], [tensor], limit, send_counts=counts[0], receive_counts=counts[1])

    def all_to_all_parts(self, outputs, flat, counts, limit):
        """Into a tensor for each rank; `flat`: what they get, one after the other."""
        into = torch.empty(sum(counts[1]), dtype=flat.dtype, device=flat.device)
        back = list(zip(outputs, into.split(counts[1])))
        return self._run([("all_to_allv", (flat, into, *counts), {})], [flat, into], limit, back)

    def gather_parts(self, outputs, tensor, root, limit):
        """Into a tensor for each rank, at the root; elsewhere `outputs` is None."""
        source = self._source(tensor)
        into = None if outputs is None else torch.empty(len(outputs) * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        back = [] if outputs is None or not tensor.numel() else list(zip(outputs, into.chunk(len(outputs))))
        return self._run([("gather", (source, into), {"root": root})], [source] if into is None else [into, source], limit, back)

    def scatter(self, output, flat, root, limit):
        """`flat`: the root's blocks one after the other; elsewhere None."""
        out = output.detach() if _is_plain(output) else torch.empty_like(output, memory_format=torch.contiguous_format)
        back = [] if out.data_ptr() == output.data_ptr() else [(output, out)]
        return self._run([("scatter", (flat, out), {"root": root})], [out] if flat is None else [flat, out], limit, back)

    def message(self, what, tensor, rank):
        if (what, rank) not in self._between:
            self._between[what, rank] = self._cuda.Stream(device=self.device)
        receives = what == "receive"
        memory = self._source(tensor) if not receives or _is_plain(tensor) else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        back = [(tensor, memory)] if receives and not _is_plain(tensor) else []
        return self._run([("stream_messages", ([(what, memory, rank)],), {})], [memory], None, back, self._between[what, rank])

    def _blocks(self, what, outputs, inputs, limit, **options):
        into = [output.detach() if _is_plain(output) else torch.empty_like(output, memory_format=torch.contiguous_format) for output in outputs]
        sources = [self._source(tensor) for tensor in inputs]
        back = [(output, out) for output, out in zip(outputs, into) if not _is_plain(output)]
        return self._run([(what, (source, out), options) for source, out in zip(sources, into)], [*into, *sources], limit, back)

    def all_gather_parts(self, outputs, tensor, limit):
        """Into a tensor for each rank."""
        into = torch.empty(len(outputs) * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        source = self._source(tensor)
        back = list(zip(outputs, into.chunk(len(outputs)) if tensor.numel() else []))
        return self._run([("all_gather", (source, into), {})], [into, source], limit, back)

    def barrier(self, limit):
        return self._run([("barrier", (), {})], [], limit, [])

    @staticmethod
    def _source(tensor):
        tensor = tensor.detach()
        return tensor if _is_plain(tensor) else tensor.resolve_conj().resolve_neg().contiguous()

    def _run(self, calls, tensors, limit, back, stream=None):
        seconds = None if limit is None or limit.total_seconds() <= 0 else limit.total_seconds()
        cuda, stream = self._cuda, stream or self._stream
        with self._lock:
            captured = cuda.is_current_stream_capturing()
            stream.wait_stream(cuda.current_stream(self.device))
            try:
                for what, arguments, options in calls:
                    getattr(self._communicator, what)(*arguments, timeout=seconds, stream=stream, **options)
            except errors.Error as failed:
                raise as_runtime_error(failed)
            if back:
                with cuda.stream(stream), torch.no_grad():
                    for tensor, copy in back:
                        tensor.detach().copy_(copy.view(tensor.shape))
            for tensor in [*tensors, *(tensor for tensor, _ in back)]:  # the allocator gives their memory to nobody before the stream has come past
                tensor.record_stream(stream)
            done = cuda.Event()
            done.record(stream)
            if not captured:
                self._last[stream] = done
        return done, captured

    # ---- what came of it ----

    def check(self):
        """Raises what has ended the communicator, as far as that is known."""
        if (failed := self._communicator.failure) is not None:
            raise as_runtime_error(failed)

    def follow(self, done):
        """What the caller's current stream gets from here on waits for the collective."""
        self._cuda.current_stream(self.device).wait_event(done)

    def wait(self, done, seconds=None):
        """Waits on the host, and raises how it has failed."""
        began = time.monotonic()
        pause = 0
        while not done.query():
            waited = time.monotonic() - began
            if seconds is not None and waited > seconds:
                raise as_runtime_error(errors._of("timed_out", "the operation goes on"))
            time.sleep(pause)
            pause = 0 if waited < 0.0005 else min(waited / 8, 0.005)
        try:
            self._communicator.stream_status()
        except errors.Error as failed:
            raise as_runtime_error(failed)

    def future(self, result):
        """A future of CUDA: whose waiter's stream waits for what the group's stream has now."""
        made = torch.futures.Future(devices=[torch.device("cuda", self.device)])
        with self._cuda.stream(self._stream):
            made.set_result(result)
        return made

    def drain(self, seconds=None):
        """Returns once no kernel of the group runs, each of which ends at its deadline at the latest, or after so long."""
        for last in list(self._last.values()):
            try:
                self.wait(last, seconds)
            except errors.Error:
                pass  # who waited for the work has heard of it


class StreamWork(FairwayWork):
    """Of collectives on the GPU. wait() makes the current stream wait, not the host; with a timeout, and of a barrier, the host too."""

    def __init__(self, group, side, ran, result, on_host=False):
        super().__init__(group, [], result)
        self._side, self._on_host = side, on_host
        self._done, self._captured = ran

    def _end(self, timeout=None):
        ended = True
        try:
            self._side.check()
            self._side.follow(self._done)
            if not self._captured and (timeout is not None or self._on_host):
                self._side.wait(self._done, timeout)
        except errors.Error as error:
            ended = not isinstance(error, errors.TimedOut)
            raise
        finally:
            if ended:
                self._group._kept.pop(id(self), None)

    def is_completed(self):
        return self._captured or self._done.query()

    def get_future(self):
        with self._lock:
            if self._future is None:
                self._future = self._side.future(self._result)
            return self._future
