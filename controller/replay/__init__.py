"""A recorded run, once more: exactly as it was, and as it would have been under other policies."""
