"""
The MachinePool object: heartbeat, addresses, conditions and the classes that it offers.
"""
