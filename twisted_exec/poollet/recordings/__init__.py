"""ConsoleRecordings of a pool."""
