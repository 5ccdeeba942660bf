"""A rank that `Ranks.local` started: host, port, rank and number of ranks are its arguments."""

import contextlib
import signal
import sys

from warpfactor.errors import RankError
from warpfactor.ranks.crew import join

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for rank 0, which may want to keep the best so far
    host, port, rank, count = sys.argv[1:]
    code = 1
    with contextlib.suppress(RankError):
        join(host, int(port), int(rank), int(count))
        code = 0
    sys.exit(code)
