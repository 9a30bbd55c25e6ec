"""What runs on a host itself, sent there over ssh: Python's own library and nothing else."""
