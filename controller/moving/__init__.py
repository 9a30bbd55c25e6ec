"""A controller as one file: what it needs to go on in another folder, at another address, on another machine."""
