"""One measurement in a process of its own: `python -m warpfactor.bench.speed_worker`, the job as JSON on its input."""

from __future__ import annotations

import importlib
import json
import sys

from warpfactor.bench.speed.job import Job
from warpfactor.errors import WarpfactorError
from warpfactor.registration.resources import limited_threads

KINDS = {"iteration": "speed_iteration", "greedy": "speed_greedy", "start": "speed_start", "pair": "speed_pair"}
KINDS |= {"windows": "speed_turns", "sizes": "speed_turns"}


def main() -> None:
    """Entry point: figures as JSON on the last line of the output, or one sentence on stderr and code 1."""
    job = Job(**json.loads(sys.stdin.read()))
    try:
        with limited_threads(job.threads):
            found = importlib.import_module(f"warpfactor.bench.{KINDS[job.kind]}").measure(job)
    except (WarpfactorError, MemoryError) as error:
        sys.stderr.write(f"{error or 'The memory is full.'}\n")
        sys.exit(1)
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
