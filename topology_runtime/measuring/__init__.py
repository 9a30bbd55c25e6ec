"""Models of tasks: each measured in a real worker in a real slot, for seconds on first use, thoroughly when asked.

collect        real input rows of every task, by running the topology's source and logic once
sample_rows    these rows as files, and tasks that play them back
bench          one task with n threads in a slot, fed by a second worker as fast as it takes
frames         how many rows a frame has meanwhile (pure)
probing        one measurement of it; open_loop: does it keep up with a given rate?
profile_steps  what to measure next, and when it is enough; the model out of what was measured (pure)
task_profile   one task, step after step; side_by_side: several of them
first_use      all tasks of a topology, quickly
background     one task in a spare slot of a run, on rows that its workers mirror
store          where models are kept, per machine, topology and slot size
quota          slots that limit CPU: cgroup v2 or v1, else one core
json_lines     what the processes tell each other
"""
