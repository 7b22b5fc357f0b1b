"""``kubectl console -l SELECTOR``: the consoles of many machines in one terminal."""
