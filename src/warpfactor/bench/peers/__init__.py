"""Other registration tools, run from native files with their usual settings. A new tool is one module and one entry."""

from __future__ import annotations

from warpfactor.bench.peers.ants import SYN, SYN_QUICK
from warpfactor.bench.peers.base import Peer
from warpfactor.bench.peers.demons import DEMONS
from warpfactor.bench.peers.greedy import GREEDY

PEERS: dict[str, Peer] = {peer.name: peer for peer in (GREEDY, SYN_QUICK, SYN, DEMONS)}

__all__ = ["PEERS", "Peer"]
