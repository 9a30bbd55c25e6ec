"""`headgate up`: one run from nothing to a running topology and back to nothing; `up_run.py` is the outline."""
