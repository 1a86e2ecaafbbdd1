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
from .process_group_side import Side, current_handle, made_call, seconds_of, shared_call
from .process_group_work import FairwayWork, Work, as_runtime_error

_MOST_RANKS = 8
_RECORD_BYTES = 512
_MEET_FROM = 1 << 20  # bytes: of a longer collective one warp waits for the other ranks, so what computes beside it has the GPU
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
        self._current = current_handle(cuda)
        self._lock = threading.Lock()  # guards what the ranks decide
        self._own = None  # the Side of collectives
        self._between = {}  # those of messages, by what and with whom
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
        device = self.device
        for tensor in tensors:
            if device is None or not tensor.is_cuda or tensor.get_device() != device:
                return self._takes_any(tensors)
        return bool(tensors)

    def _takes_any(self, tensors):
        if any(tensor.device.type != "cuda" for tensor in tensors):
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
                group.use_gpu(index, **{"meet_from": _MEET_FROM, "messages": True, **self.options})
            except errors.Error as failed:  # on every rank
                if group.failure is not None:
                    raise as_runtime_error(failed)
                reason = str(failed)
        if reason:
            self.reason = reason
            if group.rank == 0:
                warnings.warn(f"fairway: collectives of GPU tensors go through the host, which is slow: {reason}", RuntimeWarning, stacklevel=4)
            return
        self._own = Side(group, self._cuda, index)
        self.device = index

    # ---- collectives: each gives the Side that it runs on, and the event behind it ----

    def all_reduce(self, tensors, reduction, limit):
        return self._in_place("all_reduce", tensors, limit, **reduction)

    def reduce(self, tensor, root, reduction, limit):
        return self._in_place("reduce", [tensor], limit, root, **reduction)

    def broadcast(self, tensors, root, limit):
        return self._in_place("broadcast", tensors, limit, root)

    def _in_place(self, kind, tensors, limit, root=0, op="", factor=1.0):
        seconds, calls, used, back = seconds_of(limit), [], tensors, None
        for tensor in tensors:
            if not _is_plain(tensor):
                used = [self._source(one) for one in tensors]
                back = [pair for pair in zip(tensors, used) if pair[0] is not pair[1]]
                break
        for tensor in used:
            call, each = shared_call(kind, tensor.dtype, op, factor, root, seconds)
            place = tensor.data_ptr()
            calls.append((call, place, place, tensor.numel() * each))
        return self._run(calls, used, back)

    def all_gather(self, outputs, inputs, limit):
        return self._blocks("all_gather", outputs, inputs, limit, self._communicator.size, 1)

    def reduce_scatter(self, outputs, inputs, reduction, limit):
        return self._blocks("reduce_scatter", outputs, inputs, limit, 1, self._communicator.size, **reduction)

    def all_to_all(self, output, tensor, limit):
        size = self._communicator.size
        return self._blocks("all_to_all", [output], [tensor], limit, size, size)

    def _blocks(self, kind, outputs, inputs, limit, received, sent, **reduction):
        """`received`, `sent`: how many blocks an output and an input have."""
        seconds, calls, used, back = seconds_of(limit), [], [], []
        for output, tensor in zip(outputs, inputs):
            block = output.numel() // received
            if output.dtype is not tensor.dtype or output.numel() != block * received or tensor.numel() != block * sent:
                told = f"{tensor.numel()} elements of {tensor.dtype} and an output of {output.numel()} of {output.dtype}"
                raise errors._of("invalid_argument", f"{kind}: {told} are not {sent} and {received} equal blocks")
            into, source = self._target(output), self._source(tensor)
            if into is not output:
                back.append((output, into))
            used += [into, source]
            call, each = shared_call(kind, output.dtype, seconds=seconds, **reduction)
            calls.append((call, source.data_ptr(), into.data_ptr(), block * each))
        return self._run(calls, used, back)

    def all_to_allv(self, output, tensor, counts, limit):
        into, source = self._target(output), self._source(tensor)
        return self._different_blocks(into, source, counts, limit, [] if into is output else [(output, into)])

    def all_to_all_parts(self, outputs, flat, counts, limit):
        """Into a tensor for each rank; `flat`: what they get, one after the other."""
        into = torch.empty(sum(counts[1]), dtype=flat.dtype, device=flat.device)
        return self._different_blocks(into, flat, counts, limit, list(zip(outputs, into.split(counts[1]))))

    def _different_blocks(self, into, source, counts, limit, back):
        if into.dtype is not source.dtype:
            raise errors._of("invalid_argument", f"all_to_all: elements of {source.dtype}, and an output of {into.dtype}")
        call, _ = made_call("all_to_allv", source.dtype, seconds=seconds_of(limit), counts=counts)
        return self._run([(call, source.data_ptr(), into.data_ptr(), 0)], [into, source], back)

    def all_gather_parts(self, outputs, tensor, limit):
        """Into a tensor for each rank."""
        return self._parts("all_gather", outputs, tensor, limit, 0)

    def gather_parts(self, outputs, tensor, root, limit):
        """Into a tensor for each rank, at the root; elsewhere `outputs` is None."""
        return self._parts("gather", outputs, tensor, limit, root)

    def _parts(self, kind, outputs, tensor, limit, root):
        source = self._source(tensor)
        call, each = shared_call(kind, tensor.dtype, root=root, seconds=seconds_of(limit))
        if outputs is None:
            return self._run([(call, source.data_ptr(), 0, tensor.numel() * each)], [source])
        into = torch.empty(len(outputs) * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        back = list(zip(outputs, into.chunk(len(outputs)) if tensor.numel() else []))
        return self._run([(call, source.data_ptr(), into.data_ptr(), tensor.numel() * each)], [into, source], back)

    def scatter(self, output, flat, root, limit):
        """`flat`: the root's blocks one after the other; elsewhere None."""
        if flat is not None and (flat.dtype is not output.dtype or flat.numel() != output.numel() * self._communicator.size):
            told = f"{flat.numel()} elements of {flat.dtype} are no blocks of {output.numel()} of {output.dtype} for {self._communicator.size} ranks"
            raise errors._of("invalid_argument", f"scatter: {told}")
        into = self._target(output)
        call, each = shared_call("scatter", output.dtype, root=root, seconds=seconds_of(limit))
        calls = [(call, 0 if flat is None else flat.data_ptr(), into.data_ptr(), output.numel() * each)]
        return self._run(calls, [into] if flat is None else [flat, into], [] if into is output else [(output, into)])

    def barrier(self, limit):
        return self._run([(shared_call("barrier", torch.uint8, seconds=seconds_of(limit))[0], 0, 0, 0)], [])

    def message(self, what, tensor, rank):
        side = self._between.get((what, rank))
        if side is None:
            side = self._between.setdefault((what, rank), Side(self._communicator, self._cuda, self.device))
        receives = what == "receive"
        memory = self._target(tensor) if receives else self._source(tensor)
        back = [(tensor, memory)] if receives and memory is not tensor else []
        return self._run([(memory.data_ptr(), memory.numel() * memory.element_size(), rank, receives)], [memory], back, side, side.run_messages)

    @staticmethod
    def _source(tensor):
        return tensor if _is_plain(tensor) else tensor.detach().resolve_conj().resolve_neg().contiguous()

    @staticmethod
    def _target(tensor):
        return tensor if _is_plain(tensor) else torch.empty_like(tensor, memory_format=torch.contiguous_format)

    def _run(self, what, tensors, back=(), side=None, enqueue=None):
        """Enqueues it behind what the caller's current stream has, and then the copies of `back`: (into, from) of each."""
        side = side or self._own
        try:
            done = (enqueue or side.run)(self._current(self.device), what)
        except errors.Error as failed:
            raise as_runtime_error(failed)
        stream = side.stream
        if back:
            with self._cuda.stream(stream), torch.no_grad():
                for tensor, copy in back:
                    tensor.detach().copy_(copy.view(tensor.shape))
                    tensor.record_stream(stream)
            done.record()
        for tensor in tensors:  # the allocator gives their memory to nobody before the stream has come past
            tensor.record_stream(stream)
        if not done.captured:
            side.newest = done
        return side, done

    # ---- what came of it ----

    def follow(self, done):
        """What the caller's current stream gets from here on waits for it. Raises what has ended the communicator, as far as that is known."""
        try:
            done.stream_wait(self._current(self.device))
        except errors.Error as failed:
            raise as_runtime_error(failed)

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

    def drain(self, seconds=None):
        """Returns once no kernel of the group runs, each of which ends at its deadline at the latest, or after so long."""
        for side in [self._own, *self._between.values()]:
            if side is None or side.newest is None:
                continue
            try:
                self.wait(side.newest, seconds)
            except errors.Error:
                pass  # who waited for the work has heard of it


class _Past:
    """In the place of an event that the GPU has come past."""

    captured = False
    query = staticmethod(lambda: True)
    stream_wait = staticmethod(lambda stream: None)


class StreamWork(FairwayWork):
    """Of collectives on the GPU. wait() makes the current stream wait, not the host; with a timeout, and of a barrier, the host too."""

    def __init__(self, group, ran, result, on_host=False):
        Work.__init__(self)  # of FairwayWork's it has no operations to end
        self._group, self._result, self._on_host, self._future = group, result, on_host, None
        self._side, self._done = ran

    def _end(self, timeout=None):
        ended = True
        try:
            self._group.gpu.follow(self._done)
            if (timeout is not None or self._on_host) and not self._done.captured:
                self._group.gpu.wait(self._done, timeout)
        except errors.Error as error:
            ended = not isinstance(error, errors.TimedOut)
            raise
        finally:
            if ended:
                self._group._kept.pop(id(self), None)
                self._group._ended.pop(id(self), None)

    def _slim(self):
        self._result = None
        if not self._done.captured:
            self._done = _Past

    def is_completed(self):
        return self._done.captured or self._done.query()

    def get_future(self):
        if self._future is None:  # two threads may make one each, of which any is right
            self._future = self._side.future(self._result)
        return self._future
