"""A small BMC: Redfish documents in the shape of vendors' ones, sessions, power, a console, and faults."""
