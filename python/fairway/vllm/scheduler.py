"""The scheduler's half: what is to be loaded and what waits for a decoder. No memory and no engine."""

import collections
import logging
import secrets

from .messages import SLOTS, Load, Metadata, Offer

_log = logging.getLogger("fairway.vllm")


# vLLM's RequestStatus of a request whose prompt was computed to its end; all others, such as FINISHED_ABORTED, offer nothing.
_COMPUTED = ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")


class SchedulerSide:
    def __init__(self, engine_id, block_size):
        self.engine_id, self.block_size = engine_id, block_size
        self.addresses = []
        self.next = Metadata()
        self.wanted = set()  # requests whose remote pages were promised to the scheduler
        self.free = collections.deque(range(SLOTS))
        self.slots = {}  # request -> slot, of those that wait for their decoder

    def _remote(self, request):
        """What the request says of its prefill elsewhere; None: nothing, or what makes no sense. It is computed here then:
        these words came by way of a router and its clients."""
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return None
        blocks, addresses = params.get("remote_block_ids"), params.get("remote_addresses")
        good = (
            isinstance(blocks, (list, tuple))
            and all(isinstance(block, int) and 0 <= block < 1 << 32 for block in blocks)
            and isinstance(addresses, (list, tuple))
            and len(addresses) == max(1, len(self.addresses))  # one for each tensor-parallel rank, on both sides
            and all(isinstance(address, str) for address in addresses)
            and len(blocks) * self.block_size >= request.num_prompt_tokens
            and params.get("remote_block_size", self.block_size) == self.block_size
            and isinstance(params.get("remote_request_id"), str)
            and all(isinstance(params.get(name), int) and 0 <= params[name] < 1 << 63 for name in ("remote_slot", "remote_token"))
        )
        if not good:
            _log.warning("request %s is computed here: its kv_transfer_params make no sense", request.request_id)
        return params if good else None

    def matched_tokens(self, request, computed):
        if self._remote(request) is None:
            return 0, False
        count = request.num_prompt_tokens - computed
        return (count, True) if count > 0 else (0, False)

    def allocated(self, request, block_ids, shared, external_tokens):
        """block_ids: of the whole request, those of this engine's own prefix cache included; `shared`: those that other requests may
        be reading, which nothing is loaded into."""
        params = self._remote(request)
        if params is None:
            return
        params["do_remote_prefill"] = False  # once: what fails is not tried again
        remote = params["remote_block_ids"]
        if external_tokens == 0:
            return self._unwanted(params)  # all of it was here already
        # Block i of either side holds the same tokens, however many blocks there are behind the prompt's (look-ahead slots).
        first, end = (request.num_prompt_tokens - external_tokens) // self.block_size, -(-request.num_prompt_tokens // self.block_size)
        local = [block for block in block_ids[first:end] if block not in shared]
        pairs = [(here, there) for here, there in zip(block_ids[first:end], remote[first:end]) if here not in shared]
        refused = "" if len(block_ids) >= end else f"{len(block_ids)} blocks do not hold {request.num_prompt_tokens} tokens"
        self.next.loads.append(Load(request.request_id, local, [there for _, there in pairs], params["remote_request_id"],
                                    params["remote_addresses"], params["remote_slot"], params["remote_token"], refused))

    def _unwanted(self, params):
        """The prefill engine hears of it, and need not wait for a decoder that does not come."""
        self.next.unwanted.append((list(params["remote_addresses"]), params["remote_request_id"]))

    def finished(self, request, block_ids):
        """(whether the blocks must wait for get_finished, what the router hands to a decoder)."""
        params = request.kv_transfer_params or {}
        if self._remote(request) is not None:  # it was aborted before it was scheduled
            params["do_remote_prefill"] = False
            self._unwanted(params)
        if not params.get("do_remote_decode") or not block_ids or not self.free or request.status.name not in _COMPUTED:
            return False, None
        slot, token = self.free.popleft(), secrets.randbits(63) | 1
        self.slots[request.request_id] = slot
        self.next.offers.append(Offer(request.request_id, slot, token))
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": list(block_ids),
            "remote_block_size": self.block_size,
            "remote_engine_id": self.engine_id,
            "remote_request_id": request.request_id,
            "remote_addresses": list(self.addresses),
            "remote_slot": slot,
            "remote_token": token,
        }

    def sent(self, requests):
        for request in requests or ():
            if request in self.slots:
                self.free.append(self.slots.pop(request))

    def metadata(self, preempted):
        made, self.next = self.next, Metadata()
        made.preempted = set(preempted or ())
        return made
