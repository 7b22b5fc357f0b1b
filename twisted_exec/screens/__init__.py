"""
Screens: what a terminal would show of a console's output, as text, JSON, SVG or escape sequences.
"""
