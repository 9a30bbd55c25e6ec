"""Quick models of a topology's tasks: each measured for seconds in a real worker in a real slot.

collect    real input rows of every task, by running the topology's source and logic once
samples    these rows as files, and tasks that play them back
bench      one task with n threads in a slot, fed by a second worker as fast as it takes
measuring  all tasks, several side by side, thread count after thread count
search     which count comes next, and when it is enough; the model out of the points (pure)
background one task in a spare slot of a run, on rows that its workers mirror
store      where models are kept, per machine, topology and slot size
quota      slots that limit CPU: cgroup v2 or v1, else one core
lines      what the processes tell each other
"""
