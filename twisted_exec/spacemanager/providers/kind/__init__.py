"""Provider ``kind``: clusters that the ``kind`` program creates."""
