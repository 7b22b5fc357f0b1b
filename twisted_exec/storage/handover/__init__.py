"""A store whose process was replaced: the former process goes on through its successor."""
