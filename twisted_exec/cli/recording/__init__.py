"""``twisted-exec recording``: recordings in files and in clusters."""
