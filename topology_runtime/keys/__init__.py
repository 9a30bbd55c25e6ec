"""Who may speak to whom: keys, and the folder that holds them."""
