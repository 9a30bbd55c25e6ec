"""A recorded run, once more: exactly as it was, and as it would have been under other policies.

    recorded       what a trace holds of a run, checked                    (pure)
    trace_reading  a trace folder → `Recording`                            (files)
    tail           the inputs of a run that goes on, as they are written   (files)
    exact_replay   the recorded inputs → the same loop, step by step       (pure)
    comparing      the decisions recorded and those of the replay          (pure)
    world          VMs and workers that do at once what the models promise (pure)
    policies       a policy over the recorded offer, in such a world       (pure)
    ideal_account  what a run costs and what it fails to carry             (pure)
    pacing         moments as they come, slowed down to a multiple of real time

Everything that happens is a `Moment` (`exact_replay.py`): whoever wants to show a replay iterates over them.
"""
