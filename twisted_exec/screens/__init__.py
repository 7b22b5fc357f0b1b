"""Screens: a console's output as a terminal would show it."""
