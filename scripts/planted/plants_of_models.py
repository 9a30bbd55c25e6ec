"""Bugs in how tasks are measured before they run."""

from __future__ import annotations

from planted.planting import Plant, one

CORE = "controller/core/profiling.py"
FIRST = "tests/decisions/test_first_profiles.py"
STATE = "agent/core/agent_state.py"
SPARE_SLOTS = "tests/agent/test_profile_slots.py"
FRAMES, FRAMED = "topology_runtime/measuring/profile_steps.py", "tests/measuring/test_profile_steps.py"

LEARNING, LEARNED = "controller/core/learned_models.py", "tests/decisions/test_learned_models.py"

OF_MEASURING: tuple[Plant, ...] = (
    one(
        "rows of a slow task come together at its peak",
        LEARNING,
        "if not _quick(seen, cores):",
        "if False:",
        test=LEARNED,
    ),
    one(
        "a figure stands in for what is not known",
        "controller/models/plans.py",
        "self.rate_tps if self.rate_tps < UNLIMITED_TPS else None",
        "self.rate_tps",
        test=LEARNED,
    ),
    one(
        "a pause before a frame is its rows' cost",
        LEARNING,
        "max(_slope(large) - COLD_ROW_S,",
        "max(mean,",
        test=LEARNED,
    ),
    one(
        "frames stay as single rows allow them", FRAMES, "while most >= 2 * rows", "if most > 1", test=FRAMED
    ),
    one(
        "a slow task is looked at with large frames",
        FRAMES,
        "alone_tps * QUICK_S < cores",
        "False",
        test=FRAMED,
    ),
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
        "if vm not in k.members.here:",
        "if vm not in k.members.members:",
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
        "all(member.binding for member in k.members.up())",
        "True",
        test=FIRST,
    ),
    one("a model is not journaled", CORE, "turn.record(TaskMeasured(", "repr(TaskMeasured(", test=FIRST),
    one("two profiles are in one slot", STATE, " and not self.uses(spec.slot)", "", test=SPARE_SLOTS),
    one(
        "a profile outlives the controller that wanted it",
        "agent/core/agent_state.py",
        "*self.profile.stop(), ",
        "",
        test=SPARE_SLOTS,
    ),
    one(
        "what a submitted model's file says besides is lost",
        "controller/core/commands.py",
        "return tuple(model for model, _ in read if model is not None)",
        "return tuple(Model(model.task, model.slot, model.points) for model, _ in read if model is not None)",
        test="tests/decisions/test_commands_answers.py",
    ),
    one(
        "a model is kept wherever a host's name leads",
        "dashboards/terminal/submit_commands.py",
        'if KIND.fullmatch(slot["machine"]) and model["task"] in store.modelled(self._topology):',
        "if slot:",
        test="tests/terminal/test_submission_told.py",
    ),
)


# ── Bugs in how traffic is measured, planned by, and planned again for ──────────────────────────────────

TRIGGERS, KNOWN = "controller/core/plan_triggers.py", "controller/models/plans.py"
TRACE, SLOTS, PLANNER = (
    "controller/planning_commands/past_runs.py",
    "controller/plan/mappers/free_slots.py",
    "controller/plan/plan_steps.py",
)
LOOP_TEST, MEASURED = "tests/decisions/test_traffic_triggers.py", "tests/analysis/test_traffic_measured.py"
MAPPED, PLANNED = (
    "tests/planning/mapping/test_mappers_by_traffic.py",
    "tests/planning_commands/test_plan_command.py",
)

LINKS, LINKED = "controller/plan/predict/vm_links.py", "tests/planning/mapping/test_vm_links.py"

OF_TRAFFIC: tuple[Plant, ...] = (
    one(
        "what stays on a VM fills its link",
        LINKS,
        "            if vm != other:\n                yield vm, other, part * taken",
        "            yield vm, other, part * taken",
        test=LINKED,
    ),
    one(
        "a link is full at twice what it holds",
        LINKS,
        "link.part > 1 + TOLERANCE",
        "link.part > 2",
        test=LINKED,
    ),
    one(
        "only what a VM sends fills its link",
        "controller/models/plan_data.py",
        "max(self.out_bytes_per_s, self.in_bytes_per_s)",
        "self.out_bytes_per_s",
        test=LINKED,
    ),
    one(
        "copies to all threads travel once",
        LINKS,
        "copies = threads.get(edge.target, 1) if copied else 1",
        "copies = 1",
        test=LINKED,
    ),
    one(
        "it is moved for any saving", TRIGGERS, "if saved <= triggers.saves:", "if saved < 0:", test=LOOP_TEST
    ),
    one(
        "traffic is looked at in every turn",
        TRIGGERS,
        "now_ns - since_ns >= k.settings.triggers.every_s * NS",
        "now_ns >= since_ns",
        test=LOOP_TEST,
    ),
    one(
        "a load that is over is a load still",
        TRIGGERS,
        "        k.traffic.loaded_since_ns = 0\n",
        "        pass\n",
        test=LOOP_TEST,
    ),
    one(
        "a plan that lightens nothing is made for a loaded VM",
        TRIGGERS,
        "if after > LIGHTER * before:",
        "if after > 100 * before:",
        test=LOOP_TEST,
    ),
    one(
        "every mapper is online",
        TRIGGERS,
        "mapper is not None and mapper.online",
        "mapper is not None",
        test=LOOP_TEST,
    ),
    one(
        "what an operator holds is moved",
        TRIGGERS,
        "if not may_plan(k) or seen",
        "if seen",
        test=LOOP_TEST,
    ),
    one(
        "rows within a slot count for the size of rows",
        "controller/core/plan_triggers.py",
        "ends: edge.bytes_per_s / edge.between_slots_tps",
        "ends: edge.bytes_per_s / edge.rate_tps",
        test=MEASURED,
    ),
    one(
        "slots of one VM are taken for two VMs",
        "controller/monitor/sample_intake.py",
        "self._vm_of[threads + 1] = vm",
        "self._vm_of[threads + 1] = slots",
        test=MEASURED,
    ),
    one(
        "CPU of a slow VM counts as that of a fast one",
        "controller/monitor/sample_intake.py",
        "tasks[CPU] * sender.vm.speed",
        "tasks[CPU]",
        test=MEASURED,
    ),
    one("noise is another plan", KNOWN, 'float(f"{value:.{DIGITS}g}")', "value", test=MEASURED),
    one(
        "bytes of rows are not looked at",
        SLOTS,
        "link = weight_of(flow)",
        "link = flow.rows_tps",
        test=MAPPED,
    ),
    one("measured CPU is not looked at", SLOTS, "max(cpu, min(1.0, measured))", "cpu", test=MAPPED),
    one(
        "what fits nowhere by measured CPU fits nowhere",
        PLANNER,
        "        except Infeasible:\n            return _in_few_slots(request, allocation, room)",
        "        except ZeroDivisionError:\n            return _in_few_slots(request, allocation, room)",
        test=MAPPED,
    ),
    one(
        "threads are counted by the selectivities of the file",
        TRACE,
        "measured.get((edge.source, edge.target), edge.selectivity)",
        "edge.selectivity",
        test=PLANNED,
    ),
    one(
        "the traffic of a policy is not handed over",
        "controller/replay/replay_policies.py",
        "self._world.loop.knowledge.traffic.measured = self._question.traffic",
        "pass",
        test="tests/replay/test_online_policies.py",
    ),
)


# ── Bugs in who manages latency constraints, how long sequences take, and what is done about it ─────────

MANAGERS, SEQUENCES, MEASURES = (
    "topology_runtime/latency/path_managers.py",
    "topology_runtime/latency/path_managers.py",
    "topology_runtime/latency/countermeasures.py",
)
WATCH = "topology_runtime/worker/process/latency_watch.py"
SHARED, ADDED, MEETING, HEARD, ASKED = (
    "tests/latency/test_path_managers.py",
    "tests/latency/test_countermeasures.py",
    "tests/latency/test_countermeasures.py",
    "tests/latency/test_constraint_standings.py",
    "tests/worker/process/test_latency_watch.py",
)
ACKS, OUTPUTS = "topology_runtime/worker/rows/acks.py", "topology_runtime/worker/calls/output_buffers.py"

OF_LATENCY: tuple[Plant, ...] = (
    one(
        "senders in slots without a receiver are forgotten",
        MANAGERS,
        "frozenset().union(self._astray, *(",
        "frozenset().union(*(",
        test=SHARED,
    ),
    one(
        "threads that no row reaches have a manager",
        MANAGERS,
        "        path.append(channels[-1].after(path[-1]))",
        "        path.append(receivers)",
        test=SHARED,
    ),
    one(
        "the anchor is in the fewest workers",
        MANAGERS,
        "key=lambda place: (-workers[place], fewest[place], place)",
        "key=lambda place: (workers[place], fewest[place], place)",
        test=SHARED,
    ),
    one(
        "the slowest way through a channel leaves out what comes after it",
        SEQUENCES,
        "threads_ms.get(target, 0.0) + beyond[target]\n",
        "threads_ms.get(target, 0.0)\n",
        test=ADDED,
    ),
    one(
        "what is not measured counts as a sequence",
        SEQUENCES,
        "            if sender in to[-1]:\n",
        "            if True:\n",
        test=ADDED,
    ),
    one(
        "what was measured before a step counts after it",
        MEASURES,
        "        if now_s < self._deaf_until_s:\n            return\n",
        "",
        test=MEETING,
    ),
    one(
        "a manager says once what it wants",
        WATCH,
        "                self._pace(path.wanted(), now_ns)\n",
        "                pass\n",
        test=ASKED,
    ),
    one(
        "what a manager wanted holds for ever",
        WATCH,
        "            wishes.by = {slot: said for slot, said in wishes.by.items() if now_ns - said[1] <= LAPSED_NS}\n",
        "",
        test=ASKED,
    ),
    one(
        "a manager may pace a channel that is not there",
        WATCH,
        "        return edge is not None and ends == (edge.source, edge.target)\n",
        "        return edge is not None\n",
        test=ASKED,
    ),
    one(
        "gaps are the limit, not shares of it",
        MEASURES,
        "gap_ms = share_ms(limit_ms, found.fixed[pair], len(self._edges))",
        "gap_ms = share_ms(limit_ms, found.fixed[pair], 1)",
        test=MEETING,
    ),
    one(
        "a thread is in two chains",
        MEASURES,
        "free = taken.isdisjoint(pair) and",
        "free = pair not in self._chained and",
        test=MEETING,
    ),
    one(
        "idle threads get larger frames too",
        MEASURES,
        "for thread in pair) >= BUSY",
        "for thread in pair) >= 0.0",
        test=MEETING,
    ),
    one(
        "the alarm stays when all constraints hold",
        "controller/core/plan_triggers.py",
        'turn.alarm("latency", "", "all latency constraints hold")',
        "pass",
        test=HEARD,
    ),
    one(
        "a buffer leaves as all do, whatever was asked for",
        OUTPUTS,
        "self._paces[pace.edge, pace.target] = pace",
        "pass",
        test="tests/worker/calls/test_routing.py",
    ),
)
