"""Registration: the linear and the deformable stage, recipes as data, and `register`, which runs a recipe.

The package has the name of its main function, and Python binds a package to its name in the parent. So that
`warpfactor.register(fixed, moving)` works no matter what was imported first, the package itself can be called. Its
arguments are those of `warpfactor.register.api.register`, which explains them.
"""

import inspect
import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        """What `warpfactor.register.api.register` returns for these arguments."""
        from warpfactor.register.api import register

        return register(*args, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        """What editors and `inspect.signature` show."""
        from warpfactor.register.api import register

        return inspect.signature(register)


sys.modules[__name__].__class__ = _Callable
