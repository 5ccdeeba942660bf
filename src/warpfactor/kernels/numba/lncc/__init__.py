"""CPU form of `lncc`, `lncc_plans` and `lncc_slabs`.

| file | contents |
|---|---|
| `kernel.py` | the kernel: value and gradient in one pass over the planes of every block |
| `plan.py` | what is prepared once per level: spans, blocks and buffers |
| `blocks.py` | how an image is divided among threads |
| `spans.py` | which voxels of a row need computing |
| `sums.py` | window sums along z and y, row by row |
| `correlation.py` | from the window sums of a row to its correlations and forces |
"""

from warpfactor.kernels.numba.lncc.kernel import lncc
from warpfactor.kernels.numba.lncc.plan import lncc_plans, lncc_slabs

__all__ = ["lncc", "lncc_plans", "lncc_slabs"]
