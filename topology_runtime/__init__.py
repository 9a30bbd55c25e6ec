"""What a topology is, what is said on the wire, and how one slot runs it.

User code is only ever imported in processes that import this package and nothing else of headgate.
"""
