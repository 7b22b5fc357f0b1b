"""
The driver of QEMU virtual machines: command line, disks, process, control socket and serial line.
"""
