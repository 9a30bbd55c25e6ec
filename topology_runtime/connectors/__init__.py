"""Sources and sinks for what is outside: files, and later brokers and databases."""
