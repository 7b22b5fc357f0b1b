"""ConsoleAlerts of a pool."""
