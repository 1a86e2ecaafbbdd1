"""torch.distributed's process group over a Communicator. `import fairway.torch` registers it."""

# size: one class, whose methods PyTorch names

import collections
import sys

import torch
import torch.distributed as dist

from . import errors
from .process_group_gpu import GpuSide, StreamWork
from .process_group_work import FairwayWork, Message, as_runtime_error

_REDUCTIONS = (
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.PRODUCT, "product"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.AVG, "average"),
)
_ROOTED = ("broadcast", "reduce", "gather", "scatter")  # a Work of these says that this rank is done, as of every backend
_OF_TRUTHS = ((dist.ReduceOp.BAND, "min"), (dist.ReduceOp.BOR, "max"))
# Works that nobody has waited for: PyTorch's C++ keeps only the half of them that is not Python's, and would wait for ever once
# Python's is gone. Of more than _KEPT those that have ended let go of their tensors; of _ENDED such the oldest are forgotten.
_KEPT, _ENDED = 64, 16384


def _is_premul(given):
    return given == getattr(dist.ReduceOp, "PREMUL_SUM", None)


def _factor(given):
    """Of a PREMUL_SUM: 2.x has it in what pickle gets, 1.13 in C++ alone."""
    state = getattr(given, "__getstate__", lambda: None)()
    if not isinstance(state, tuple) or len(state) != 2 or state[1] is None:
        raise errors._of(
            "unsupported", f"PyTorch {torch.__version__} does not show the factor of a PREMUL_SUM to backends in Python: multiply the tensor first, and use SUM"
        )
    return float(state[1])


def _reduction(given, tensor):
    """As options of a Communicator's call."""
    for op, name in _REDUCTIONS:
        if given == op:
            return {"op": name}
    if tensor.dtype is torch.bool:
        for op, name in _OF_TRUTHS:
            if given == op:
                return {"op": name}
    if _is_premul(given):
        return {"op": "premul_sum", "factor": _factor(given)}
    raise errors._of("unsupported", f"the backend fairway has no {getattr(given, 'op', given)} of {tensor.dtype}: SUM, PRODUCT, MIN, MAX, AVG and PREMUL_SUM, of truths BAND and BOR")


def _single(tensors, what):
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise errors._of("invalid_argument", f"{what}: one tensor for each rank, not {len(tensors)}")
    return tensors[0]


def _check(tensor, what):
    if tensor.layout is not torch.strided:
        raise errors._of("unsupported", f"{what}: the backend fairway takes dense tensors, not {tensor.layout}")


def _host(tensor, what):
    """The tensor's memory where that is the host's and contiguous, else a copy."""
    _check(tensor, what)
    tensor = tensor.detach()
    return tensor if tensor.device.type == "cpu" and tensor.is_contiguous() else tensor.cpu().contiguous()


def _copy(into, host):
    """Back from where _host copied it, or from a buffer."""
    if into.data_ptr() != host.data_ptr() or into.device != host.device:
        with torch.no_grad():
            into.detach().copy_(host.view(into.shape) if host.numel() == into.numel() else host)


def _empty_host(tensor, what):
    """Where a result for the tensor is put: itself, or a buffer that _copy empties into it."""
    _check(tensor, what)
    tensor = tensor.detach()
    return tensor if tensor.device.type == "cpu" and tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype)


def _joined(tensors):
    """One flat tensor over all of them, where they lie one after the other; else None."""
    first = tensors[0]
    end = first.data_ptr()
    for tensor in tensors:
        if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.dtype != first.dtype or tensor.data_ptr() != end:
            return None
        end += tensor.numel() * tensor.element_size()
    total = sum(tensor.numel() for tensor in tensors)
    whole = first.untyped_storage() if hasattr(first, "untyped_storage") else first.storage()
    room = whole.nbytes() - first.storage_offset() * first.element_size()
    return first.detach().as_strided((total,), (1,)) if total * first.element_size() <= room else None


class FairwayProcessGroup(dist.ProcessGroup):
    """The backend "fairway". `communicator` is the fairway.Communicator behind it, with `failure`, shrink and abort."""

    def __init__(self, communicator):
        super().__init__(communicator.rank, communicator.size)
        self.communicator = communicator
        self._kept, self._ended = collections.OrderedDict(), collections.OrderedDict()
        self._sequence = 0
        self._batch = None
        self._names = ["", ""]
        self.gpu = GpuSide(communicator, torch.cuda)

    def getBackendName(self):
        return "fairway"

    def _get_backend_name(self):
        return "fairway"

    def name(self):
        return "fairway"

    def _work(self, operations, result, finish=None):
        return self._keep(FairwayWork(self, operations, result, finish))

    def _stream_work(self, ran, result, on_host=False):
        return self._keep(StreamWork(self, ran, result, on_host))

    def _keep(self, work):
        self._sequence += 1
        self._kept[id(work)] = work
        if self._batch is not None:
            self._batch.append(work)
        while len(self._kept) > _KEPT and self._slim_oldest():
            pass
        return work

    def _slim_oldest(self):
        """False: it has not ended, or another thread emptied what is kept."""
        try:
            key, oldest = self._kept.popitem(last=False)
        except KeyError:
            return False
        if not oldest.is_completed():
            self._kept[key] = oldest
            self._kept.move_to_end(key, last=False)
            return False
        if sys.getrefcount(oldest) == 2:  # else Python's half is somebody's
            oldest._slim()
            self._ended[key] = oldest
            if len(self._ended) > _ENDED:
                self._ended.popitem(last=False)
        return True

    def _call(self, what, *arguments, **options):
        seconds = options.pop("limit", None)
        if seconds is not None and seconds.total_seconds() > 0:
            options["timeout"] = seconds.total_seconds()
        if what in _ROOTED:
            options["local_completion"] = True
        return getattr(self.communicator, what)(*arguments, wait=False, **options)

    def _on_gpu(self, tensors, what):
        """Whether it runs there."""
        for tensor in tensors:
            if tensor.layout is not torch.strided:
                _check(tensor, what)
        return self.gpu.takes(tensors)

    def register_window(self, tensor):
        """fairway.torch.register_window of this group."""
        place = getattr(getattr(tensor, "device", None), "type", "")
        if place != "cuda":
            where = f"a tensor on {place}" if place else f"a {type(tensor).__name__}"
            raise errors._of("invalid_argument", f"register_window: {where}, and a window is a tensor on the GPU that the group uses")
        if not self._on_gpu([tensor], "register_window"):
            raise errors._of("unsupported", f"register_window: the group's GPU tensors go through the host: {self.gpu.reason}")
        return self.communicator.register_window(tensor.detach())

    # ---- all ranks ----

    def allreduce(self, tensors, opts=None, op=None):
        return self.allreduce_coalesced([_single(tensors, "all_reduce")], opts, op)

    def allreduce_coalesced(self, tensors, opts=None, op=None):
        given = op if op is not None else dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
        limit = getattr(opts, "timeout", None)
        if self._on_gpu(tensors, "all_reduce"):
            return self._stream_work(self.gpu.all_reduce(tensors, _reduction(given, tensors[0]), limit), list(tensors))
        hosts = [_host(tensor, "all_reduce") for tensor in tensors]
        operations = [self._call("all_reduce", host, **_reduction(given, host), limit=limit) for host in hosts]
        return self._work(operations, list(tensors), lambda: [_copy(tensor, host) for tensor, host in zip(tensors, hosts)])

    def broadcast(self, tensors, opts=None, root=None):
        source = opts.rootRank if root is None else root
        if self._on_gpu(tensors, "broadcast"):
            return self._stream_work(self.gpu.broadcast(tensors, source, getattr(opts, "timeout", None)), list(tensors))
        hosts = [_host(tensor, "broadcast") for tensor in tensors]
        operations = [self._call("broadcast", host, source, limit=getattr(opts, "timeout", None)) for host in hosts]
        mine = self.rank() == source
        return self._work(operations, list(tensors), None if mine else lambda: [_copy(tensor, host) for tensor, host in zip(tensors, hosts)])

    def reduce(self, tensors, opts):
        tensor = _single(tensors, "reduce")
        limit = getattr(opts, "timeout", None)
        if self._on_gpu([tensor], "reduce"):
            return self._stream_work(self.gpu.reduce(tensor, opts.rootRank, _reduction(opts.reduceOp, tensor), limit), [tensor])
        host = _host(tensor, "reduce")
        at = self.rank() == opts.rootRank
        operation = self._call("reduce", host, **_reduction(opts.reduceOp, host), root=opts.rootRank, limit=limit)
        return self._work([operation], [tensor], (lambda: _copy(tensor, host)) if at else None)

    def barrier(self, opts=None):
        limit = getattr(opts, "timeout", None)
        if self.gpu.device is not None:  # behind what the GPU has to do, as the program knows it of NCCL
            return self._stream_work(self.gpu.barrier(limit), [], on_host=True)
        return self._work([self._call("barrier", limit=limit)], [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier; the error names the rank that did not come. (One rank: `wait_all_ranks` makes no difference.)"""
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        try:
            self.communicator.barrier(timeout=seconds if seconds is not None and seconds > 0 else None)
        except errors.Error as failed:
            if failed.rank is not None:
                failed.args = (f"Rank {failed.rank} failed to pass monitoredBarrier: {failed}",)
            raise as_runtime_error(failed)

    # ---- blocks ----

    def _check_parts(self, kind, outputs, tensor):
        if len(outputs) != self.size():
            raise errors._of("invalid_argument", f"{kind}: {len(outputs)} output tensors, one for each of {self.size()} ranks are needed")
        for rank, output in enumerate(outputs):
            if output.numel() != tensor.numel() or output.dtype != tensor.dtype:
                raise errors._of(
                    "invalid_argument",
                    f"{kind}: the output for rank {rank} is {output.numel()} of {output.dtype}, the input {tensor.numel()} of {tensor.dtype}",
                )

    def _gathered(self, kind, outputs, tensor, limit, root=None):
        """all_gather or gather of one tensor into a list with one for each rank (None: not here)."""
        host = _host(tensor, kind)
        more = {} if root is None else {"root": root}
        if outputs is None:
            return self._call(kind, host, limit=limit, **more), [], None
        self._check_parts(kind, outputs, tensor)
        flat = _joined(outputs)
        into = torch.empty(self.size() * host.numel(), dtype=host.dtype) if flat is None else flat
        operation = self._call(kind, host, into, limit=limit, **more)
        if flat is not None:
            return operation, outputs, None
        return operation, outputs, lambda: [_copy(output, part) for output, part in zip(outputs, into.chunk(self.size()) if host.numel() else [])]

    def allgather(self, output_tensors, input_tensors, opts=None):
        outputs, tensor, limit = _single(output_tensors, "all_gather"), _single(input_tensors, "all_gather"), getattr(opts, "timeout", None)
        if self._on_gpu([tensor, *outputs], "all_gather"):
            self._check_parts("all_gather", outputs, tensor)
            return self._stream_work(self.gpu.all_gather_parts(outputs, tensor, limit), [outputs])
        operation, outputs, finish = self._gathered("all_gather", outputs, tensor, limit)
        return self._work([operation], [outputs], finish)

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        limit = getattr(opts, "timeout", None)
        parts = [self._gathered("all_gather", [of_rank[i] for of_rank in output_lists], tensor, limit) for i, tensor in enumerate(input_list)]
        return self._work([part[0] for part in parts], output_lists, lambda: [part[2]() for part in parts if part[2]])

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        if self._on_gpu([*inputs, *outputs], "all_gather"):
            return self._stream_work(self.gpu.all_gather(outputs, inputs, getattr(opts, "timeout", None)), list(outputs))
        into = [_empty_host(output, "all_gather") for output in outputs]
        limit = getattr(opts, "timeout", None)
        operations = [self._call("all_gather", _host(tensor, "all_gather"), out, limit=limit) for tensor, out in zip(inputs, into)]
        return self._work(operations, list(outputs), lambda: [_copy(output, out) for output, out in zip(outputs, into)])

    def _allgather_base(self, output, input, opts=None):
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, output_tensors, input_tensors, opts):
        here = self.rank() == opts.rootRank
        outputs, tensor = _single(output_tensors, "gather") if here else None, _single(input_tensors, "gather")
        limit = getattr(opts, "timeout", None)
        if self._on_gpu([tensor, *(outputs or ())], "gather"):
            if here:
                self._check_parts("gather", outputs, tensor)
            return self._stream_work(self.gpu.gather_parts(outputs, tensor, opts.rootRank, limit), [outputs])
        operation, outputs, finish = self._gathered("gather", outputs, tensor, limit, opts.rootRank)
        return self._work([operation], [outputs], finish)

    def scatter(self, output_tensors, input_tensors, opts):
        output = _single(output_tensors, "scatter")
        blocks = _single(input_tensors, "scatter") if self.rank() == opts.rootRank else ()
        if self._on_gpu([output, *blocks], "scatter"):
            flat = torch.cat([block.detach().reshape(-1) for block in blocks]) if blocks else None
            return self._stream_work(self.gpu.scatter(output, flat, opts.rootRank, getattr(opts, "timeout", None)), [output])
        out = _empty_host(output, "scatter")
        flat = None
        if self.rank() == opts.rootRank:
            flat = torch.cat([_host(tensor, "scatter").reshape(-1) for tensor in blocks])
        operation = self._call("scatter", flat, out, opts.rootRank, limit=getattr(opts, "timeout", None))
        return self._work([operation], [output], lambda: _copy(output, out))

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        given = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        if self._on_gpu([*inputs, *outputs], "reduce_scatter"):
            ran = self.gpu.reduce_scatter(outputs, inputs, _reduction(given, outputs[0]), getattr(opts, "timeout", None))
            return self._stream_work(ran, list(outputs))
        into = [_empty_host(output, "reduce_scatter") for output in outputs]
        operations = []
        for tensor, out in zip(inputs, into):
            host = _host(tensor, "reduce_scatter")
            operations.append(self._call("reduce_scatter", host, out, **_reduction(given, host), limit=getattr(opts, "timeout", None)))
        return self._work(operations, list(outputs), lambda: [_copy(output, out) for output, out in zip(outputs, into)])

    def _reduce_scatter_base(self, output, input, opts=None):
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        blocks = _single(input_tensors, "reduce_scatter")
        here = (lambda block: block.detach()) if self._on_gpu(blocks, "reduce_scatter") else (lambda block: _host(block, "reduce_scatter"))
        flat = torch.cat([here(block).reshape(-1) for block in blocks])
        return self.reduce_scatter_tensor_coalesced([_single(output_tensors, "reduce_scatter")], [flat], opts)

    def alltoall_base(self, output, input, output_split_sizes=(), input_split_sizes=(), opts=None):
        limit = getattr(opts, "timeout", None)
        equal = not output_split_sizes and not input_split_sizes and input.numel() == output.numel()
        counts = None if equal else [self._rows(tensor, splits) for tensor, splits in ((input, input_split_sizes), (output, output_split_sizes))]
        if self._on_gpu([input, output], "all_to_all"):
            ran = self.gpu.all_to_all(output, input, limit) if equal else self.gpu.all_to_allv(output, input, counts, limit)
            return self._stream_work(ran, [output])
        out, host = _empty_host(output, "all_to_all"), _host(input, "all_to_all")
        if equal:
            operation = self._call("all_to_all", host, out, limit=limit)
        else:
            operation = self._call("all_to_allv", host, out, *counts, limit=limit)
        return self._work([operation], [output], lambda: _copy(output, out))

    all_to_all_single = alltoall_base

    def _rows(self, tensor, splits):
        """What goes to, or comes from, each rank, in elements."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self.size():
                raise errors._of("invalid_argument", f"all_to_all: {rows} rows are no {self.size()} equal parts; give split sizes")
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows or min(splits) < 0:
            raise errors._of("invalid_argument", f"all_to_all: split sizes {list(splits)} are not {self.size()}, none below 0, that add up to {rows} rows")
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    def alltoall(self, output_tensors, input_tensors, opts=None):
        if len(output_tensors) != self.size() or len(input_tensors) != self.size():
            raise errors._of("invalid_argument", f"all_to_all: {self.size()} input and output tensors, one for each rank")
        counts = [[tensor.numel() for tensor in tensors] for tensors in (input_tensors, output_tensors)]
        if self._on_gpu([*input_tensors, *output_tensors], "all_to_all"):
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in input_tensors])
            return self._stream_work(self.gpu.all_to_all_parts(output_tensors, flat, counts, getattr(opts, "timeout", None)), list(output_tensors))
        flat = torch.cat([_host(tensor, "all_to_all").reshape(-1) for tensor in input_tensors])
        into = torch.empty(sum(tensor.numel() for tensor in output_tensors), dtype=output_tensors[0].dtype)
        operation = self._call("all_to_allv", flat, into, *counts, limit=getattr(opts, "timeout", None))
        return self._work([operation], list(output_tensors), lambda: [_copy(output, part) for output, part in zip(output_tensors, into.split(counts[1]))])

    # ---- two ranks ----

    def _goes_by_stream(self, tensor, what):
        """Only two ranks are here, so they decide nothing: once a collective of GPU tensors has run, all know."""
        return self.gpu.device is not None and tensor.device.type == "cuda" and self._on_gpu([tensor], what)

    def send(self, tensors, dst, tag=0):
        tensor = _single(tensors, "send")
        if self._goes_by_stream(tensor, "send"):
            return self._stream_work(self.gpu.message("send", tensor, dst), [tensor])
        return self._work([Message(self.communicator.send(_bytes(_host(tensor, "send")), dst, tag, wait=False), "send to", dst)], [tensor])

    def recv(self, tensors, src, tag=0):
        tensor = _single(tensors, "recv")
        if self._goes_by_stream(tensor, "recv"):
            return self._stream_work(self.gpu.message("receive", tensor, src), [tensor])
        host = _empty_host(tensor, "recv")
        message = self.communicator.receive(_bytes(host), src, tag, wait=False)
        return self._work([Message(message, "receive from", src, host.numel() * host.element_size())], [tensor], lambda: _copy(tensor, host))

    def recv_anysource(self, tensors, tag=0):
        raise errors._of("unsupported", "the backend fairway receives from a rank that the caller names: give src=")

    # ---- the rest of the interface ----

    def _start_coalescing(self, *_):
        self._batch = []

    def _end_coalescing(self, *_):
        """One Work for all that was called since: they have started one by one."""
        works, self._batch = self._batch or [], None
        return FairwayWork(self, works, [work._result for work in works])

    def _set_sequence_number_for_group(self):
        self._sequence = 0

    def _get_sequence_number_for_group(self):
        return self._sequence

    def abort(self):
        """Ends everything at once; the other ranks see this one leave."""
        if self.communicator is not None:  # shrink() has taken it
            self.communicator._group.abort()
            self.gpu.drain(10)  # kernels end soon, and use the communicator's memory until then
            self.communicator.abort()

    def shutdown(self):
        if self.communicator is not None:
            self.gpu.drain()
            self.communicator.close()

    # PyTorch 2.x has names of groups in the backends that C++ groups are made of.

    def setGroupName(self, name):
        self._names[0] = name

    def getGroupName(self):
        return self._names[0]

    def setGroupDesc(self, description):
        self._names[1] = description

    def getGroupDesc(self):
        return self._names[1]


def _bytes(host):
    """The tensor's bytes as DLPack shows them, of any dtype."""
    if not host.numel():
        raise errors._of("unsupported", "the backend fairway sends no empty tensors")
    return host.reshape(-1).view(torch.uint8)
