"""
Drivers for existing lines: serial devices, sockets, console servers, IPMI, SSH, other programs.
"""
