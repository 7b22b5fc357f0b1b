"""
Faster ways than the libraries' own, which use their private names
(:mod:`twisted_exec.tls.fast.names`).

A part whose names are missing runs the libraries' own way.
"""
