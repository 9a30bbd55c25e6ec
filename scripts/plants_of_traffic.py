"""Bugs in how traffic is measured, planned by, and planned again for."""

from __future__ import annotations

from planting import Plant, one

TRIGGERS, KNOWN = "controller/core/traffic_triggers.py", "controller/knowledge/traffic.py"
TRACE, SLOTS, PLANNER = (
    "controller/offline/from_trace.py",
    "controller/plan/slot_room.py",
    "controller/plan/planner.py",
)
LOOP_TEST, MEASURED = "tests/enactment/test_traffic_triggers.py", "tests/analysis/test_traffic_measured.py"
MAPPED, PLANNED = (
    "tests/planning/test_mappers_by_traffic.py",
    "tests/planning_commands/test_plan_from_trace.py",
)

LINKS, LINKED = "controller/plan/links.py", "tests/planning/test_links.py"

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
        "controller/knowledge/plan_traffic.py",
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
    one("every mapper is online", TRIGGERS, "not mapper.online", "not mapper", test=LOOP_TEST),
    one(
        "what an operator holds is moved",
        TRIGGERS,
        "if not may_plan(k) or seen",
        "if seen",
        test=LOOP_TEST,
    ),
    one(
        "rows within a slot count for the size of rows",
        "controller/analyze/traffic.py",
        "ends: edge.bytes_per_s / edge.between_slots_tps",
        "ends: edge.bytes_per_s / edge.rate_tps",
        test=MEASURED,
    ),
    one(
        "slots of one VM are taken for two VMs",
        "controller/monitor/layout.py",
        "self._vm_of[threads + 1] = vm",
        "self._vm_of[threads + 1] = slots",
        test=MEASURED,
    ),
    one(
        "CPU of a slow VM counts as that of a fast one",
        "controller/monitor/intake.py",
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
    one("measured CPU is not looked at", SLOTS, "max(cpu, measured)", "cpu", test=MAPPED),
    one(
        "what fits nowhere by measured CPU fits nowhere",
        PLANNER,
        "        except Infeasible:\n            return _within(request, allocation, room)",
        "        except ZeroDivisionError:\n            return _within(request, allocation, room)",
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
        "controller/replaying/policies.py",
        "self._world.loop.knowledge.traffic.measured = self._question.traffic",
        "pass",
        test="tests/replay/test_online_policies.py",
    ),
)
