"""
Why a store cannot be opened.
"""


class StorageError(Exception):
    """One line for whoever starts the program: which file, what is wrong, what would help."""
