"""The scheduler's half: what is to be loaded and what waits for a decoder. No memory and no engine."""

import collections
import logging
import secrets

from .messages import SLOTS, Load, Metadata, Offer

_log = logging.getLogger("fairway.vllm")


class SchedulerSide:
    def __init__(self, engine_id):
        self.engine_id = engine_id
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

    def allocated(self, request, block_ids, external_tokens):
        params = self._remote(request)
        if params is None:
            return
        params["do_remote_prefill"] = False  # once: what fails is computed here
        remote = params["remote_block_ids"]
        if external_tokens == 0 or not remote:
            return self._unwanted(params)  # all of it was here already
        # The last blocks are those that are missing: the first ones were found in this engine's own prefix cache.
        local = list(block_ids)[-len(remote) :] if len(block_ids) > len(remote) else list(block_ids)
        self.next.loads.append(Load(request.request_id, local, list(remote)[-len(local) :], params["remote_request_id"],
                                    params["remote_addresses"], params["remote_slot"], params["remote_token"]))

    def _unwanted(self, params):
        """The prefill engine hears of it, and need not wait for a decoder that does not come."""
        self.next.unwanted.append((list(params["remote_addresses"]), params["remote_request_id"]))

    def finished(self, request, block_ids):
        """(whether the blocks must wait for get_finished, what the router hands to a decoder)."""
        params = request.kv_transfer_params or {}
        if self._remote(request) is not None:  # it was aborted before it was scheduled
            params["do_remote_prefill"] = False
            self._unwanted(params)
        if not params.get("do_remote_decode") or not block_ids or not self.free or not getattr(request, "completed", True):
            return False, None
        slot, token = self.free.popleft(), secrets.randbits(63) | 1
        self.slots[request.request_id] = slot
        self.next.offers.append(Offer(request.request_id, slot, token))
        return True, {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": list(block_ids),
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
