"""Quick models of a topology's tasks: each measured for seconds in a real worker in a real slot.

collect   real input rows of every task, by running the topology's source and logic once
bench     one task with n threads in a slot, fed by a second worker as fast as it takes
search    which n comes next, and when it is enough; the model out of the points
store     where models are kept, per machine, topology and slot size
quota     slots that limit CPU: cgroup v1 or v2, else one core
"""
