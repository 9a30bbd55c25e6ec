"""Blob and table services of this machine, with a cloud's limits: `scripts/services` starts them.

Nothing of the product imports them; what speaks with such services is `topology_runtime/tasks/service_clients.py`."""
