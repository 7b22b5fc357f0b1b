"""
Programs that implement IRI: pty and QEMU machines.
"""
