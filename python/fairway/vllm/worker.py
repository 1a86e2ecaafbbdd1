"""A worker's half: one engine, the registered KV cache, what is being loaded and what waits for its decoder.

A slot of the ledger holds a request's token as long as its pages are valid. A decoder reads the pages and then the slot: only
when the token is still there were the pages that request's to the last byte. So a prefill engine may take blocks back whenever it
must, and nobody is served from them."""

import collections
import concurrent.futures
import threading
import time

import fairway
import numpy as np

from . import messages


class Loading:
    """connecting -> claiming -> reading -> verifying -> done, moved on by WorkerSide.step(), which never waits; stopping -> done
    when it is aborted."""

    def __init__(self, load):
        self.load = load
        self.state = "connecting"
        self.transfer = self.remote = None
        self.word = np.zeros(1, np.uint64)
        self.failed = None


def _hear(engine, heard):
    """Takes the notes as they come, also while the engine has no requests and so makes no steps: unread ones would hold decoders up."""
    while True:
        try:
            heard.append(engine.wait_notification(None))
        except fairway.Error:
            if engine.closed:
                return


class WorkerSide:
    CONNECT_SECONDS = 5.0  # how long a prefill engine may take to answer
    CLAIM_SECONDS = 2.0  # how long a prefill worker may take to hear that its pages are being read

    def __init__(self, rank, unclaimed_seconds, options):
        self.rank, self.unclaimed_seconds = rank, unclaimed_seconds
        self.engine = fairway.Engine(**options)
        self.threads = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix="fairway-connect")
        self.heard = collections.deque()
        threading.Thread(target=_hear, args=(self.engine, self.heard), name="fairway-notes", daemon=True).start()
        self.ledger = self.engine.allocate(8 * messages.SLOTS, "r")
        self.tokens = np.frombuffer(memoryview(self.ledger), np.uint64)
        self.engine.publish(messages.LEDGER, self.ledger)
        self.regions, self.pages, self.page_bytes, self.names = [], [], [], []
        self.remotes = {}  # address -> future of (ledger, layers), of sessions that are up
        self.loading = {}
        self.offers = {}  # request -> [slot, deadline or None once claimed, the peer that claimed it]
        self.errors = set()
        self.farewells = []  # (address, remote request), where the connection was not up yet
        self.sent = set()

    # ---- memory ----

    def register(self, caches, blocks):
        """caches: layer's name -> tensor, (blocks, ...) or (2, blocks, ...), as it lies or as a view with its dimensions in another order
        (FlashInfer's, with layout HND)."""
        for index, cache in enumerate(caches.values()):
            planes = 1 if cache.shape[0] == blocks else 2
            if planes == 2 and (cache.shape[0] != 2 or cache.shape[1] != blocks):
                raise fairway.InvalidArgument(f"layer {index}'s cache of shape {tuple(cache.shape)} has no dimension of {blocks} blocks")
            strides = cache.stride() if callable(getattr(cache, "stride", None)) else cache.strides
            order = sorted(range(len(strides)), key=lambda dimension: -strides[dimension])
            if order[:planes] != list(range(planes)):
                raise fairway.InvalidArgument(f"layer {index}'s cache has strides {tuple(strides)}: a block's bytes do not lie together")
            region = self.engine.register(cache.permute(order) if hasattr(cache, "permute") else cache.transpose(order), "r")
            page_bytes = region.nbytes // (planes * blocks)
            self.names.append(messages.layer_name(index, page_bytes, order))
            self.engine.publish(self.names[-1], region)
            self.regions.append(region)
            self.page_bytes.append(page_bytes)
            self.pages.append([plane * blocks for plane in range(planes)])

    def table(self, load):
        """Rows for Request.extents: every page of every layer."""
        here, there = np.array(load.local_blocks, np.int64), np.array(load.remote_blocks, np.int64)
        rows = []
        for layer, (size, planes) in enumerate(zip(self.page_bytes, self.pages)):
            for first in planes:
                rows.append(np.stack([np.full(len(here), layer), (first + here) * size, np.full(len(here), layer),
                                      (first + there) * size, np.full(len(here), size)], axis=1))
        return np.ascontiguousarray(np.concatenate(rows).astype(np.int64))

    # ---- what the scheduler asked for ----

    def take(self, metadata):
        for offer in metadata.offers:
            self.tokens[offer.slot] = offer.token
            self.offers[offer.request] = [offer.slot, time.monotonic() + self.unclaimed_seconds, None]
        for addresses, request in metadata.unwanted:
            self._remote(addresses[self.rank])
            self.farewells.append((addresses[self.rank], request))
        for load in metadata.loads:
            self._remote(load.addresses[self.rank])
            self.loading[load.request] = Loading(load)
        self.step()

    def stop(self, requests):
        """Aborted or preempted: step() gives their blocks back as soon as nothing can land in them."""
        for request in requests:
            loading = self.loading.get(request)
            if loading is not None and loading.state != "done":
                loading.failed = loading.failed or fairway.Cancelled("the request was aborted")
                loading.state = "stopping"

    def _remote(self, address):
        if address not in self.remotes:
            self.remotes[address] = self.threads.submit(self._connect, address)
        return self.remotes[address]

    def _connect(self, address):
        peer = self.engine.connect(address, self.CONNECT_SECONDS)
        return peer.lookup(messages.LEDGER), [peer.lookup(name) for name in self.names]

    # ---- moving on ----

    def step(self):
        self._listen()
        for loading in list(self.loading.values()):
            if loading.state == "done":
                continue
            try:
                self._advance(loading)
            except Exception as error:
                # Whatever it is, the request ends: its blocks are reported as not loaded, and vLLM does what its
                # kv_load_failure_policy says.
                loading.failed = error
                self._forget(loading.load.addresses[self.rank], error)
                self._end(loading)
        self._say_farewells()
        now = time.monotonic()
        for request, (_, deadline, _) in list(self.offers.items()):
            if deadline is not None and now > deadline:
                self._take_back(request)

    def _advance(self, loading):
        load = loading.load
        if load.refused:
            raise fairway.InvalidArgument(load.refused)
        if loading.state == "stopping":
            if loading.transfer is None or loading.transfer.done or loading.transfer.cancel(timeout=0):
                self._end(loading)
            return
        if loading.state == "connecting":
            future = self._remote(load.addresses[self.rank])
            if not future.done():
                return
            loading.remote = future.result()
            ledger, _ = loading.remote
            loading.transfer = self.engine.read(loading.word, ledger[8 * load.slot : 8 * load.slot + 8], deadline=self.CLAIM_SECONDS,
                                                notify=(messages.CLAIM, load.remote_request))
            loading.state = "claiming"
        if loading.state == "claiming" and loading.transfer.done:
            loading.transfer.result()
            if not load.local_blocks:
                return self._end(loading)  # other requests have brought them all
            _, layers = loading.remote
            loading.transfer = self.engine.submit([fairway.Request.extents("read", self.regions, layers, self.table(load))])
            loading.state = "reading"
        if loading.state == "reading" and loading.transfer.done:
            loading.transfer.result()
            ledger, _ = loading.remote
            loading.transfer = self.engine.read(loading.word, ledger[8 * load.slot : 8 * load.slot + 8])
            loading.state = "verifying"
        if loading.state == "verifying" and loading.transfer.done:
            loading.transfer.result()
            if int(loading.word[0]) != load.token:
                raise fairway.Revoked(f"the prefill engine took the blocks of {load.remote_request} back")
            self._end(loading)

    def _end(self, loading):
        load = loading.load
        if loading.failed is not None:
            self.errors.update(load.local_blocks)
        self.farewells.append((load.addresses[self.rank], load.remote_request))
        loading.state = "done"

    def _say_farewells(self):
        """The prefill engine has its blocks back at once, also of requests that were aborted before they read any."""
        waiting, self.farewells = self.farewells, []
        for address, request in waiting:
            future = self.remotes.get(address)
            if future is not None and not future.done():
                self.farewells.append((address, request))
            elif future is not None and future.exception() is not None:
                del self.remotes[address]  # the next one connects anew
            elif future is not None:
                try:
                    self.engine.read(np.zeros(1, np.uint64), future.result()[0][0:8], notify=(messages.DONE, request))
                except fairway.Error:
                    pass  # then it hears of our end, or we of its

    def _forget(self, address, error):
        """The session with that peer is over: the next request connects anew. Others are not concerned."""
        future = self.remotes.get(address)
        gone = isinstance(error, (fairway.PeerDead, fairway.StaleIncarnation, fairway.LinkFailed, fairway.Unreachable, fairway.Closed,
                                  fairway.TimedOut, fairway.Revoked))
        if future is not None and future.done() and (gone or future.exception() is not None):
            del self.remotes[address]

    def _listen(self):
        while self.heard:
            note = self.heard.popleft()
            request = note.message.decode(errors="replace")
            if request not in self.offers:
                continue
            if note.immediate == messages.CLAIM:
                self.offers[request][1:] = [None, note.peer]
            elif note.immediate == messages.DONE:
                self._take_back(request)
        for event in self.engine.poll_peer_events(256):
            if event.kind == "down":
                for request, (_, _, peer) in list(self.offers.items()):
                    if peer == event.peer:
                        self._take_back(request)
                for address, future in list(self.remotes.items()):
                    if future.done() and not future.exception() and future.result()[0].peer == event.peer:
                        del self.remotes[address]

    def _take_back(self, request):
        """The token goes first: who reads on finds it gone."""
        slot, _, _ = self.offers.pop(request)
        self.tokens[slot] = 0
        self.sent.add(request)

    def finished(self, ended):
        """(requests whose blocks are free again, requests whose load is over)."""
        self.stop(request for request in ended or () if request in self.loading)
        self.step()
        loaded = {request for request, loading in self.loading.items() if loading.state == "done"}
        for request in loaded:
            del self.loading[request]
        sent, self.sent = self.sent, set()
        return sent or None, loaded or None

    def take_errors(self):
        errors, self.errors = self.errors, set()
        return errors

    def close(self):
        self.engine.close()
        self.threads.shutdown(wait=False)
