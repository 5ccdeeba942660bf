"""The errors a user can cause. Each message names the file or value, what is wrong, and what to do."""


class WarpfactorError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class InputError(WarpfactorError):
    """An image, mask, transform or parameter that cannot be used."""


class FileError(WarpfactorError):
    """A file or folder that cannot be read or written."""
