"""`headgate up`: one run from nothing to a running topology and back to nothing; `running.py` is the outline."""
