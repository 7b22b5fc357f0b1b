"""
The web console: a page for browsers, and the part of a server that serves it.

The page (``page/``) is plain JavaScript.  It reads and writes the Kubernetes API of the same origin
with the user's credentials; its files contain no data, so they need no authentication.
"""
