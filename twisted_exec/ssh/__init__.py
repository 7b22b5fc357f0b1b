"""An SSH server on Twisted Conch, whose sessions belong to its user."""
