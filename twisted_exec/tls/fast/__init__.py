"""
Faster ways than the libraries' own: TLS on the socket's descriptor, writes that are sent at once,
short turns of the reactor.

Private names of Twisted, pyOpenSSL and cryptography that the programs use for speed are used here,
and listed in :mod:`twisted_exec.tls.fast.names`.  A part whose names are missing runs the libraries'
own way.
"""
