"""What operations of the backend "fairway" return to PyTorch."""

import datetime
import threading

import torch
import torch.distributed as dist

from . import errors


_RUNTIME = {}


def as_runtime_error(error):
    """The error, as a RuntimeError too: programs on torch.distributed expect those."""
    kind = type(error)
    if not isinstance(error, RuntimeError):
        if kind not in _RUNTIME:

            def reduce(self):  # pickled as fairway's own
                made, arguments, where = kind.__reduce__(self)
                return made, (kind, *arguments[1:]), where

            _RUNTIME[kind] = type(kind.__name__, (kind, RuntimeError), {"__module__": kind.__module__, "__reduce__": reduce})
        error.__class__ = _RUNTIME[kind]
    return error


def _gpus(result):
    """The GPUs of tensors in a list of lists; a future has to know them."""
    if isinstance(result, torch.Tensor):
        return [result.device] if result.device.type == "cuda" else []
    return list({gpu for one in result or () for gpu in _gpus(one)})


Work = dist.Work if hasattr(dist, "Work") else torch._C._distributed_c10d.Work


class FairwayWork(Work):
    """What a collective of the group returns; done once its operations are and `finish` has put the results in place."""

    def __init__(self, group, operations, result, finish=None):
        super().__init__()
        self._group, self._operations, self._result, self._finish = group, operations, result, finish
        self._lock = threading.Lock()  # guards _finish, _future
        self._future = None

    def _end(self, timeout=None):
        ended = True
        try:
            for operation in self._operations:
                (operation._end if isinstance(operation, FairwayWork) else operation.wait)(timeout)
            with self._lock:
                if self._finish is not None:
                    self._finish()
                    self._finish = None
        except errors.Error as error:
            ended = not isinstance(error, errors.TimedOut)
            raise as_runtime_error(error)
        finally:
            if ended:
                self._group._kept.pop(id(self), None)
                self._group._ended.pop(id(self), None)

    def _slim(self):
        """It has ended, and only PyTorch's C++ may still ask: of all that it has its outcome is kept."""
        try:
            self._end()
        except RuntimeError:
            return  # the operation has the reason
        self._operations, self._result = [], None

    def wait(self, timeout=datetime.timedelta(0)):
        seconds = timeout.total_seconds()
        self._end(seconds if seconds > 0 else None)
        return True

    def is_completed(self):
        return all(operation.done for operation in self._operations)

    @property
    def done(self):
        return self.is_completed()

    def add_done_callback(self, callback):
        self.get_future().add_done_callback(lambda _: callback(self))

    def exception(self):
        if not self.is_completed():
            return None
        try:
            self._end()
        except errors.Error as error:
            return error
        return None

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def result(self):
        self._end()
        return self._result

    def synchronize(self):
        self._end()

    def source_rank(self):
        raise errors._of("unsupported", "the backend fairway receives from a rank that the caller names")

    def get_future(self):
        with self._lock:
            if self._future is not None:
                return self._future
            told = torch.futures.Future(devices=_gpus(self._result))
            self._future = told.then(self._outcome)
        left = len(self._operations)
        if not left:
            told.set_result(None)

        def ended(_):
            nonlocal left
            left -= 1  # callbacks of one communicator run one after the other
            if not left:
                told.set_result(None)

        for operation in self._operations:
            operation.add_done_callback(ended)
        return self._future

    def _outcome(self, _):
        self._end()
        return self._result


class Message:
    """A Transfer in the place of an Operation."""

    def __init__(self, transfer, what, rank, size=None):
        self._transfer, self._what, self._rank, self._size = transfer, what, rank, size

    @property
    def done(self):
        return self._transfer.done

    def wait(self, timeout=None):
        try:
            got = self._transfer.wait(timeout)
        except errors.Error as failed:
            failed.rank = self._rank
            raise
        if self._size is not None and got != self._size:
            error = errors._of("invalid_argument", f"receive from rank {self._rank}: it sent {got} bytes, the tensor has {self._size}")
            error.rank = self._rank
            raise error

    def add_done_callback(self, callback):
        threading.Thread(target=lambda: (self._settle(), callback(self)), daemon=True).start()

    def _settle(self):
        try:
            self._transfer.wait()
        except errors.Error:
            pass  # wait() raises it
