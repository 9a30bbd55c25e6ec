"""What headgate would do with a deployment that it does not run: `headgate advise`."""
