"""The scheduler's half: what is to be loaded and what waits for a decoder. No memory and no engine."""

import collections
import secrets

from .messages import SLOTS, Load, Metadata, Offer


class SchedulerSide:
    def __init__(self, engine_id):
        self.engine_id = engine_id
        self.addresses = []
        self.next = Metadata()
        self.wanted = set()  # requests whose remote pages were promised to the scheduler
        self.free = collections.deque(range(SLOTS))
        self.slots = {}  # request -> slot, of those that wait for their decoder

    def matched_tokens(self, request, computed):
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return 0, False
        count = request.num_prompt_tokens - computed
        return (count, True) if count > 0 else (0, False)

    def allocated(self, request, block_ids, external_tokens):
        params = request.kv_transfer_params or {}
        if not params.get("do_remote_prefill"):
            return
        params["do_remote_prefill"] = False  # once: what fails is computed here
        remote = params.get("remote_block_ids") or []
        if external_tokens == 0 or not remote:
            return
        # The last blocks are those that are missing: the first ones were found in this engine's own prefix cache.
        local = list(block_ids)[-len(remote) :] if len(block_ids) > len(remote) else list(block_ids)
        self.next.loads.append(Load(request.request_id, local, list(remote)[-len(local) :], params["remote_request_id"],
                                    params["remote_addresses"], params["remote_slot"], params["remote_token"]))

    def finished(self, request, block_ids):
        """(whether the blocks must wait for get_finished, what the router hands to a decoder)."""
        params = request.kv_transfer_params or {}
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
