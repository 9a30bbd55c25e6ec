"""Files that the controller reads and writes: journal, tallies, models, plans, prices, machines."""
