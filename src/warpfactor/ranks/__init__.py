"""One registration on several processes or machines: each rank computes a slab of planes of the deformable stage.

| file | contents |
|---|---|
| `exchange.py` | what processes send each other: planes, sums, words; over torch.distributed |
| `lent.py` | images, which rank 0 has and lends to the others as far as they need them |
| `ops.py` | the operations on fields of which a rank has a slab |
| `share.py` | the share of a rank in a stage (`stages/share.py`) |
| `work.py` | the stage, run by all ranks at once |
| `crew.py` | ranks: started here, by torchrun, or on a Dask cluster |
| `__main__.py` | a rank that was started here |
"""
