"""How many bytes the tensors hold that live at a time."""

import weakref
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Held(TorchDispatchMode):
    """Counts the bytes of the tensors that live, but for those given; `most` is the largest sum so far."""

    def __init__(self, known: list[torch.Tensor]) -> None:
        super().__init__()
        self.known = {each.untyped_storage().data_ptr() for each in known}
        self.owners: Counter[int] = Counter()
        self.sizes: dict[int, int] = {}
        self.most = 0

    @property
    def now(self) -> int:
        return sum(self.sizes.values())

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = function(*arguments, **(options or {}))
        for each in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(each, torch.Tensor):
                place = each.untyped_storage().data_ptr()
                if place in self.known:
                    continue
                self.owners[place] += 1
                self.sizes[place] = each.untyped_storage().nbytes()
                weakref.finalize(each, self._drop, place)
        self.most = max(self.most, self.now)
        return found

    def _drop(self, place: int) -> None:
        self.owners[place] -= 1
        if not self.owners[place]:
            self.sizes.pop(place, None)
