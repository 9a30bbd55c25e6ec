"""Tables as sinks: each row once, whatever comes again."""
