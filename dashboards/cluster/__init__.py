"""`headgate cluster`: a controller and agents on hosts of one's own, over ssh (docs/how-to/run-on-a-cluster.md)."""
