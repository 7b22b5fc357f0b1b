"""
Faster ways than the libraries' own: TLS on the socket's descriptor, writes that are sent at once,
short turns of the reactor.

The private names of libraries that are used here are listed in :mod:`twisted_exec.tls.fast.names`;
a part whose names are missing runs the libraries' own way.
"""
