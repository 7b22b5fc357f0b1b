"""
ConsoleAlerts: patterns for the machine runtime, and Events about what it finds.
"""
