"""``twisted-exec doctor``: checks of everything that a console needs."""
