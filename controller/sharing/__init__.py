"""Several topologies on one cluster: who has which slots, and the controllers that run them."""
