"""Task code that travels: what a package is, who signed it, and where it is kept."""
