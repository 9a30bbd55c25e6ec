"""The whole house in one process and in virtual time: the real cores of controller, agents and workers, with a
simulated net, disks and faults between them, and checks after every event. `simulated_world.py` is where to begin."""
