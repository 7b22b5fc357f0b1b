"""
The programs of others that the page uses, from npm to ``page/vendor``.

``package.json`` names them, ``package-lock.json`` pins them.  To take newer versions, run
``npm update --package-lock-only --omit-lockfile-registry-resolved`` in this directory: the lock file
must not name a registry, since builders have their own.
"""
