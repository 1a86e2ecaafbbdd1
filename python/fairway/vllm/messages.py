"""What a connector's parts tell each other."""

import dataclasses

from .base import KVConnectorHandshakeMetadata, KVConnectorMetadata

SLOTS = 4096  # prefilled requests that may wait for their decoders at a time
LEDGER = "ledger"  # the region of their tokens: slot i holds the token of the request whose pages are valid
CLAIM, DONE = 1, 2  # immediates of a decoder's notifications to a prefill worker; the message is the request's name


def layer_name(index, page_bytes, order):
    """The region's name says how its pages lie, so that engines whose pages differ find none of each other's."""
    return f"layer {index}, pages of {page_bytes} bytes, dimensions {','.join(map(str, order))}"


@dataclasses.dataclass
class Load:
    """One request's pages, from a prefill engine's blocks into these."""

    request: str
    local_blocks: list
    remote_blocks: list
    remote_request: str
    addresses: list  # of the prefill workers, by tensor-parallel rank
    slot: int
    token: int
    refused: str = ""  # why nothing is to be read


@dataclasses.dataclass
class Offer:
    """One finished prefill whose blocks wait for their decoder."""

    request: str
    slot: int
    token: int


@dataclasses.dataclass
class Metadata(KVConnectorMetadata):
    loads: list = dataclasses.field(default_factory=list)
    offers: list = dataclasses.field(default_factory=list)
    preempted: set = dataclasses.field(default_factory=set)
    unwanted: list = dataclasses.field(default_factory=list)  # (addresses of the prefill workers, request) that nobody will read


@dataclasses.dataclass
class Handshake(KVConnectorHandshakeMetadata):
    address: str
