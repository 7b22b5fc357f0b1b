"""Tests of ``twisted-exec web``."""
