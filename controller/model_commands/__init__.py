"""Plans in the words of systems that are not ours, and models from what those systems measure."""
