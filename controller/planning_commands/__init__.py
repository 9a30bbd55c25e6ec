"""Answers from models alone: the planning commands, which need no running cluster."""
