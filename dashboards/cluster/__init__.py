"""`headgate cluster`: a controller and agents on hosts of one's own, over ssh (docs/cluster.md)."""
