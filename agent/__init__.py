"""Keeps one VM as ordered: spawns workers in slots, watches and samples them."""
