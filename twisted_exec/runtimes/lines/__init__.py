"""
Drivers for existing lines, such as serial devices, console servers and libvirt domains.
"""
