"""Bugs in how plans come into force: marks, fencing, the journal."""

from __future__ import annotations

from planted.planting import (
    AGENT,
    CORE,
    EXECUTOR,
    FOLDING,
    LATE,
    LOOP,
    LOST,
    ORDERS,
    STATE,
    STEPS,
    WANTED,
    Plant,
    one,
)

PLANS = (
    one(
        "a worker hears of threads of other code than its own",
        "agent/core/agent_state.py",
        "data is None or state.code != state.code_desired",
        "data is None",
        test="tests/agent/test_slot_codes.py",
    ),
    one(
        "threads that are of no use are chosen for what their probe happened to say",
        "controller/plan/optimal/fewest_slots.py",
        "if fits and not any(_as_good(fewer, point) for fewer in told):",
        "if fits:",
        test="tests/planning/optimal/test_fewest_slots.py",
    ),
    one(
        "moves decide nothing",
        "controller/plan/plan_moves.py",
        "        moves(relabel(plan, threads_of(in_force), room.excluded, room.pinned).placement, in_force),",
        "        0,",
        test="tests/planning/optimal/test_steady_plans.py",
    ),
    one(
        "a slot of now counts for nothing where mixes are chosen",
        "controller/plan/optimal/fewest_moves.py",
        "yield _Fill(content, place, threads - 2 * kept[place])",
        "yield _Fill(content, place, threads)",
        test="tests/planning/optimal/test_steady_plans.py",
    ),
    one(
        "whoever waits waits for all steps",
        "controller/plan/optimal/slot_mixes.py",
        "if not self.late and waited_s() > self.most_s:",
        "if False:",
        test="tests/planning/optimal/test_fewest_slots.py",
    ),
    one(
        "a spread is no reason for a margin",
        "controller/plan/plan_steps.py",
        'return by_spread(request.topology, request.models) if brims else (1.0, "")',
        'return (1.0, "")',
        test="tests/planning/allocation/test_allocation.py",
    ),
    one(
        "threads that leave count as running",
        "controller/core/plan_choice.py",
        "len(change.start) + len(change.leave) + _back(question, change)",
        "len(change.start) + len(change.leave)",
        ("is not what runs",),
    ),
    one(
        "marks are sent once (B1)",
        CORE,
        "        if orders.switched:\n            for target",
        "        if orders.switched and before is not None and before.number != orders.number:\n            for target",
        LATE,
        kinds=("kill_worker_at_mark",),
    ),
    one(
        "leavers are not marked",
        ORDERS,
        '(thread in self.leaving or edge.grouping == "fields")',
        'edge.grouping == "fields"',
        LATE,
    ),
    one(
        "ended leavers are waited for (B1)",
        STEPS,
        "return worker is not None and any(",
        "return worker is None and any(",
        LATE,
        more={"faults": 0},
    ),
    one(
        "a dead VM is waited for (B2)",
        EXECUTOR,
        "return frozenset(slot for slot in slots if slot.vm in gone or slot in barred)",
        "return frozenset(slot for slot in slots if slot.vm in gone and slot in barred)",
        LATE,
        kinds=("lose_vm", "kill_worker"),
        more={"faults": 2},
    ),
    one(
        "routes lead to the dead",
        EXECUTOR,
        "return tuple(_around(route, alive, fresh) for route in before)",
        "return before",
        ("without a fault", *LATE),
        kinds=("lose_vm",),
        seeds=200,
    ),
    one(
        "any report makes a worker ready",
        STEPS,
        'worker.state == "running" and worker.ready and worker.token >= stand.token',
        'worker.state == "running"',
        test="tests/enactment/test_rollout_phases.py",
    ),
    one(
        "a leaver ends unmarked",
        STATE,
        "if not thread.leaving or not now.empty or now.marked < self.desired.routes_number:",
        "if not thread.leaving or not now.empty:",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "who is to answer stays what it was",
        STATE,
        "return thread.thread not in self.answering",
        "return False",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "a worker without threads stays",
        STATE,
        "return [Leave()] if all(t.answers and t.thread in self.ended for t in self._mine) else []",
        "return []",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "thread numbers are given twice",
        FOLDING,
        "            next_thread=self.next_thread,\n",
        "",
        ("one number", "full ledger"),
    ),
    one(
        "epochs are given twice",
        FOLDING,
        "            next_epoch=self.epoch + 1,\n",
        "            next_epoch=self.epoch,\n",
        ("two desired states", "journaled", *LATE),
    ),
    one(
        "a plan is enacted before it is ready",
        FOLDING,
        'return replace(d, rollout=r, waiting=None, before=before, phase="prepared", phase_wall_ns=wall_ns)',
        'return replace(d, rollout=r, waiting=None, before=before, phase="switched", phase_wall_ns=wall_ns)',
        LATE,
    ),
    one(
        "threads that ended are desired",
        FOLDING,
        "    threads = tuple(t for t in d.rollout.threads if t.thread not in gone)\n",
        "    threads = d.rollout.threads\n",
        LATE,
    ),
    one(
        "a change under the old number",
        WANTED,
        "    k.counter += 1\n    token = m.Token(",
        "    k.counter += 0\n    token = m.Token(",
        ("two desired states",),
    ),
    one(
        "a new life under the old boot",
        "controller/core/loop.py",
        "turn.record(Booted(d.boot + 1, now.wall_ns))",
        "turn.record(Booted(max(d.boot, 1), now.wall_ns))",
        ("two desired states", "journaled", "workers are left", *LATE),
    ),
)

FENCING = (
    one(
        "no fault when a worker was replaced",
        STATE,
        ', Fault(f"worker {peer.slot} was replaced")]',
        "]",
        LATE,
        shape="line",
        kinds=("kill_worker",),
    ),
    one(
        "no fault when a link broke",
        STATE,
        '            self._lose(f"the link to {slot} broke")\n',
        "            pass\n",
        (*LATE, "the summary"),
        kinds=("break_data", "half_open_data"),
    ),
    one(
        "a loss that is told of is forgotten",
        STATE,
        '            self._lost = f"worker {ping.slot} lost something"\n',
        "            pass\n",
        (*LATE, "the summary"),
        kinds=("break_data", "half_open_data"),
    ),
    one(
        "frames of replaced workers are taken",
        STATE,
        "            frame.incarnation == self.known.get(frame.slot)\n",
        "            frame.incarnation > 0\n",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "an older desired state is obeyed",
        STATE,
        "        if desired.token < self.token:\n            return []\n        before",
        "        before",
        test="tests/worker/process/test_worker_state.py",
    ),
    one(
        "an agent obeys an older state",
        AGENT,
        "        if desired.token < self.token or self.stopping:\n",
        "        if self.stopping:\n",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "an agent obeys an older controller",
        AGENT,
        "        if desired.token.boot < self.controller_boot:\n            return []\n        self._heard_ns",
        "        self._heard_ns",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "incarnations begin anew",
        AGENT,
        "return max(wall_ns, state.incarnation + 1, *(n + 1 for n in named))",
        "return state.incarnation + 1",
        (*LATE, *LOST),
        shape="join",
        kinds=("kill_agent",),
    ),
    one(
        "a worker that died stays dead",
        "agent/core/slot_state.py",
        'return self.status in ("empty", "exited") and',
        'return self.status in ("empty",) and',
        LATE,
    ),
    one(
        "a slot that always crashes is never given up",
        "agent/core/slot_state.py",
        "if len(self.crashed_ns) > CRASHES_MOST:",
        "if not self.crashed_ns:",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "an exclusive task may run anywhere",
        ORDERS,
        "return not self.topology.by_name[self.task_of[thread]].exclusive or thread in self.desired.holders",
        "return True",
        ("two at once",),
        shape="exclusive",
    ),
)

JOURNAL = (
    one(
        "a failed journal is shrugged off (B6)",
        LOOP,
        "        k.durable = self._before\n",
        "        pass\n",
        ("journaled", "in mind"),
        kinds=("fail_journal",),
    ),
    one(
        "sent before it is journaled (B6)",
        "controller/knowledge/knowledge.py",
        "return [Persist(tuple(self._records)), *self._instructions]",
        "return [*self._instructions, Persist(tuple(self._records))]",
        ("before the journal",),
    ),
    one(
        "a life that is not journaled speaks",
        LOOP,
        "        self._unborn = not k.durable.boot and self._born is not None\n",
        "",
        test="tests/simulation/test_found_by_seeds.py",
    ),
)

CORRECTED = "tests/decisions/test_prediction_accounting.py"
LEDGER = (
    one(
        "a corrected model is quicker for being too quick",
        "controller/models/prediction_ledger.py",
        "return replace(point, rate_tps=point.rate_tps / slower,",
        "return replace(point, rate_tps=point.rate_tps * slower,",
        test=CORRECTED,
    ),
    one(
        "what a corrected model did counts against it once more",
        "controller/analyze/model_bias.py",
        "return (use[0], use[1] / task.cpu_factor) if use is not None else None",
        "return (use[0], use[1]) if use is not None else None",
        test=CORRECTED,
    ),
    one(
        "rows of a slow VM count against the model",
        "controller/analyze/model_bias.py",
        "for vm in task.vms if vm not in slow and",
        "for vm in task.vms if",
        test="tests/analysis/test_model_bias.py",
    ),
    one(
        "a slot's CPU is all of the first task's",
        "controller/core/prediction_accounting.py",
        "cpu = {g: used.cpu * self._rows_cpu(g, window) / total for g in modelled}",
        "cpu = {g: used.cpu for g in modelled}",
        test="tests/decisions/test_prediction_accounting.py",
    ),
    one(
        "a torn line takes the next entry with it",
        "controller/recording/prediction_ledger_file.py",
        'lines = b"\\n" + lines  # after what',
        "pass  # after what",
        test="tests/traces/test_ledger_file.py",
    ),
    one(
        "slots are full together or not at all",
        "controller/plan/predict/prediction.py",
        "total += weight * math.prod(",
        "total += weight * min(",
        test="tests/planning/prediction/test_sure_plans.py",
    ),
    one(
        "a learned bias makes a plan surer",
        "controller/plan/predict/prediction.py",
        "slots[math.floor((math.log(limit_tps / rate_tps) - mean)",
        "slots[math.floor((math.log(limit_tps / rate_tps) + mean)",
        test="tests/planning/prediction/test_sure_plans.py",
    ),
)

ROLLBACK = "tests/enactment/test_operator_actions.py"
BROUGHT_BACK = (
    one(
        "a plan that was brought back proves itself or goes",
        "controller/execute/rollout.py",
        "if held is not None and rollout is not None and held.epoch == rollout.epoch:",
        "if held is not None and rollout is None:",
        test=ROLLBACK,
    ),
    one(
        "a plan that could not be built is held",
        FOLDING,
        "        if self.undoes:\n            d = _held_but(d, self.undoes)\n",
        "",
        test=ROLLBACK,
    ),
    one(
        "a hold keeps lost VMs from being planned round",
        "controller/core/decisions.py",
        "k.durable.held_plan and diagnosis.reason not in FAULTS else",
        "k.durable.held_plan else",
        test=ROLLBACK,
    ),
    one(
        "the second operator wins",
        "controller/core/operator_actions.py",
        "if held is not None and held.plan != plan.id and not instead:",
        "if held is not None and held.plan == plan.id and not instead:",
        test=ROLLBACK,
    ),
    one(
        "advice of a time that nobody knows",
        "scripts/lab/rate_policies/advisor.py",
        "if self.offer.known_at(now.at_s):",
        "if self.offer.known_at(now.at_s) or True:",
        test="tests/backtest/test_advice.py",
    ),
    one(
        "a value stands for the second after it",
        "scripts/lab/rate_policies/prometheus_rates.py",
        "                self.began_s = at_s - step_s\n",
        "                self.began_s = at_s - 2 * step_s\n",
        test="tests/backtest/test_advice.py",
    ),
)

OF_PLANS: tuple[Plant, ...] = (*PLANS, *FENCING, *JOURNAL, *LEDGER, *BROUGHT_BACK)


# ── Bugs in what operators order: VMs that are drained, code that is replaced ───────────────────────────

WATCHING = "controller/execute/plan_drift.py"
CORDONS = "tests/enactment/test_operator_actions.py"
BESIDE = "tests/decisions/test_background_planning.py"
RECODING = "tests/enactment/test_rolling_upgrade.py"

OF_MOVES: tuple[Plant, ...] = (
    one(
        "a VM is said to be drained while its workers live",
        WATCHING,
        "over = not held and quiet and (not member.up or is_empty(member))",
        "over = not held",
        test="tests/simulation/test_found_by_seeds.py",
    ),
    one(
        "a VM whose workers have just died is said to be drained",
        WATCHING,
        "held = member.up and any(",
        "held = False and any(",
        test=CORDONS,
    ),
    one(
        "a drain outdoes what the others can carry",
        "controller/core/operator_actions.py",
        "if choice.degraded and choice.plan.rate_tps < plan.rate_tps:",
        "if choice.degraded and choice.plan.rate_tps > plan.rate_tps:",
        test=CORDONS,
    ),
    one(
        "a source that is about to move is taken for one that does not run empty",
        "controller/execute/handover.py",
        "for thread in wire_threads(k.durable):  # while",
        "for thread in k.durable.rollout.leaving:  # while",
        test=CORDONS,
    ),
    one(
        "a thread stands in for one of another partition",
        "controller/execute/handover.py",
        "if (t.task, t.partition) == (gap.task, gap.partition)",
        "if t.task == gap.task",
        test="tests/enactment/test_leavers_and_machines.py",
    ),
    one(
        "rows of a lost thread that are in a spool are not said to be lost",
        "controller/execute/handover.py",
        "gap.emitted, gap.emitted, True",
        "gap.emitted, gap.emitted",
        test="tests/enactment/test_leavers_and_machines.py",
    ),
    one(
        "VMs whose keyed threads leave are not known",
        "controller/execute/handover.py",
        "if t.task in keyed)",
        "if t.task in keyed and not t.leaving)",
        test="tests/enactment/test_leavers_and_machines.py",
    ),
    one(
        "a slot gets threads of two codes",
        EXECUTOR,
        "code=codes.get(t.slot, newest)",
        "code=newest",
        test=RECODING,
    ),
    one(
        "a worker whose code nobody runs is told nothing",
        AGENT,
        "s.code not in data",
        "s.code < 0",
        test="tests/agent/test_slot_codes.py",
    ),
    one(
        "code that failed is tried for ever",
        "controller/core/rolling_upgrade.py",
        "if failed is not None and not k.durable.given_up_code:",
        "if failed is None and k.durable.given_up_code:",
        test=RECODING,
    ),
    one(
        "an older package is not asked for",
        "agent/slots/agent_packages.py",
        "tuple(code.package for code in codes if code.package)",
        "tuple(code.package for code in codes[:1] if code.package)",
        test="tests/packages/test_agent_packages.py",
    ),
    one(
        "a plan is used though what it was made of changed",
        "controller/core/background_planning.py",
        "if getattr(then, part) != getattr(now, part))",
        "if part == now)",
        test=BESIDE,
    ),
    one(
        "a fault waits for a plan that is being made",
        "controller/core/background_planning.py",
        "(asked.urgent or not urgent)",
        "(asked.urgent or urgent is not None)",
        test=BESIDE,
    ),
)


# ── Bugs that let code in that nobody signed, or that show half a package as a whole one ────────────────

PACKAGES, TESTS = "topology_runtime/packages", "tests/packages"
ARCHIVE, STORE, AGENT_PACKAGES = (
    f"{PACKAGES}/package_archive.py",
    f"{PACKAGES}/package_store.py",
    "agent/slots/agent_packages.py",
)
ARCHIVES, STORES = f"{TESTS}/test_package_archives.py", f"{TESTS}/test_package_store.py"
AGENTS = f"{TESTS}/test_agent_packages.py"

OF_PACKAGES: tuple[Plant, ...] = (
    one(
        "a signature is not looked at",
        ARCHIVE,
        "self.signature.check(self.manifest_bytes)",
        "pass",
        test=ARCHIVES,
    ),
    one(
        "after a wrong byte a package can still become whole",
        ARCHIVE,
        "            if self._wrong is not None:",
        "            if False:",
        test=ARCHIVES,
    ),
    one(
        "what stands between two files of a package is not looked at",
        ARCHIVE,
        "            yield from _same(padding(file.size), name)\n",
        "            yield from _exactly(len(padding(file.size)))\n",
        test=ARCHIVES,
    ),
    one(
        "a file of a package may be a link to the same",
        STORE,
        "elif path.is_symlink() or _sha256(path)",
        "elif _sha256(path)",
        test=STORES,
    ),
    one(
        "a part that was damaged on the disk is gone on with",
        STORE,
        "        except BadPackage:\n            reading = Reading(digest)\n",
        "        except BadPackage:\n            pass\n",
        test=STORES,
    ),
    one(
        "what runs makes room for what is newer",
        STORE,
        " for at_ns, digest in used if digest not in kept]",
        " for at_ns, digest in used]",
        test=STORES,
    ),
    one(
        "an agent takes code of anybody who signs",
        AGENT_PACKAGES,
        "        if signer not in self._trusted:",
        "        if False:",
        test=AGENTS,
    ),
    one(
        "trust that was taken away does not hold for what is there",
        AGENT_PACKAGES,
        "            self._admit(digest, self._store.signer(digest), manifest)\n",
        "",
        test=AGENTS,
    ),
    one(
        "a signed package runs a topology that nobody signed",
        AGENT_PACKAGES,
        "        if desired.topology != signed:",
        "        if False:",
        test=AGENTS,
    ),
    one(
        "an agent with signers imports from folders",
        AGENT_PACKAGES,
        "            return None if self._unsigned else (desired, data)",
        "            return desired, data",
        test=AGENTS,
    ),
    one(
        "a file in params that stays behind is not noticed",
        f"{PACKAGES}/package_files.py",
        "        if inside is not None and (inside in files or inside in folders):",
        "        if inside is not None:",
        test=f"{TESTS}/test_package_building.py",
    ),
    one(
        "a requirement in another version than headgate's is installed over it",
        f"{PACKAGES}/package_manifest.py",
        "        elif installed[name] != version:",
        "        elif False:",
        test=f"{TESTS}/test_package_archives.py",
    ),
)
