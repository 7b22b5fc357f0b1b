"""The driver ``redfish``: consoles and power of servers behind BMCs with Redfish."""
