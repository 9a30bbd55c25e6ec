"""Bugs in how tasks are measured before they run."""

from __future__ import annotations

from planting import Plant, one

CORE = "controller/core/first_profiles.py"
FIRST = "tests/enactment/test_first_profiles.py"
STATE = "agent/profile_state.py"
SLOTS = "tests/agent/test_spare_slots_state.py"
FRAMES, FRAMED = "topology_runtime/calibration/frames.py", "tests/calibration/test_frames_measured.py"

OF_MEASURING: tuple[Plant, ...] = (
    one("frames are as large as can be", FRAMES, "tps * gap_s >= SURELY * rows", "tps > 0", test=FRAMED),
    one("a slow task is looked at with large frames", FRAMES, "alone_tps * gap_s < 1", "False", test=FRAMED),
    one(
        "what is known of one kind of machine is known of all",
        CORE,
        "(one.model, one.machine) not in known]",
        "one.model not in {model for model, _ in known}]",
        test=FIRST,
    ),
    one(
        "the fastest kind of machine is planned with",
        CORE,
        "key=peak)",
        "key=lambda m: -peak(m)[0])",
        test=FIRST,
    ),
    one(
        "a lost host is waited for",
        CORE,
        "if vm not in members.here:",
        "if vm not in members.members:",
        test=FIRST,
    ),
    one("a task that fails is tried on every host", CORE, "if said.of_task:", "if False:", test=FIRST),
    one("a host that cannot measure is asked again", CORE, "vm.vm not in k.first.unfit", "True", test=FIRST),
    one(
        "all slots of a VM measure at once",
        CORE,
        "at_once < max(1, vm.slots // AT_ONCE)",
        "at_once < vm.slots",
        test=FIRST,
    ),
    one(
        "it is planned before every host has said of what kind it is",
        CORE,
        "all(member.binding for member in members.up())",
        "True",
        test=FIRST,
    ),
    one("a model is not journaled", CORE, "turn.record(TaskMeasured(", "repr(TaskMeasured(", test=FIRST),
    one("two profiles are in one slot", STATE, " and not self.uses(spec.slot)", "", test=SLOTS),
    one(
        "a profile outlives the controller that wanted it",
        "agent/state.py",
        "*self.profile.stop(), ",
        "",
        test=SLOTS,
    ),
    one(
        "what a submitted model's file says besides is lost",
        "controller/core/measuring_commands.py",
        "return tuple(model for model, _ in read if model is not None)",
        "return tuple(Model(model.task, model.slot, model.points) for model, _ in read if model is not None)",
        test="tests/enactment/test_commands_answers.py",
    ),
    one(
        "a model is kept wherever a host's name leads",
        "dashboards/terminal/measuring.py",
        'if KIND.fullmatch(slot["machine"]) and model["task"] in store.modelled(self._topology):',
        "if slot:",
        test="tests/terminal/test_submission_told.py",
    ),
)
