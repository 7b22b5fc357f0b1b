"""
Drivers for lines that exist already: serial devices, sockets and console servers, IPMI, SSH, other
programs.
"""
