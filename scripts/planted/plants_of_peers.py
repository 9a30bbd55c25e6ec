"""Bugs in what is believed of peers with good keys, and in telling runs apart."""

from __future__ import annotations

from planted.planting import AGENT, EXECUTOR, WORKER, Plant, one

ADMISSION, BOARD = "controller/monitor/admission.py", "topology_runtime/worker/links/switchboard.py"
CONDUCT_TEST, FLOOD_TEST = "tests/controller/test_admission.py", "tests/worker/process/test_flooding_peers.py"
RUN_TEST = "tests/cli/test_run_identity.py"
LIMITS, CHANNELS = "topology_runtime/keys/link_limits.py", "topology_runtime/wire/channels.py"
LINKS_TEST, FUZZ_TEST = "tests/keys/test_link_limits.py", "tests/controller/test_valid_peers_fuzzed.py"
RAISED_TEST = "tests/worker/process/test_whatever_user_code_raises.py"
NOT_RUN_TEST, ROUTER = "tests/enactment/test_code_that_does_not_run.py", f"{WORKER}/calls/router.py"

OF_PEERS: tuple[Plant, ...] = (
    one(
        "a ban ends with the link", ADMISSION, "or now_ns < of.banned_until:", "or False:", test=CONDUCT_TEST
    ),
    one("a small message costs nothing", ADMISSION, "size + self.message_costs", "size", test=CONDUCT_TEST),
    one(
        "what was on its way over an old link is another process",
        ADMISSION,
        "self.newest_spoke and now_ns - self.link_ns > LINKS_APART_NS",
        "self.newest_spoke",
        test=CONDUCT_TEST,
    ),
    one(
        "an endpoint is any text",
        "topology_runtime/keys/key_pairs.py",
        "    return endpoint_fault(where)",
        '    return ""',
        test=CONDUCT_TEST,
    ),
    one(
        "a worker may be anywhere",
        "controller/knowledge/membership.py",
        "parted(where)[0] != member.address",
        "not parted(where)[0]",
        test=CONDUCT_TEST,
    ),
    one(
        "a channel connects wherever it is told",
        "topology_runtime/wire/channels.py",
        "if fault := endpoint_fault(contact.endpoint):",
        'if fault := "":',
        test=CONDUCT_TEST,
    ),
    one(
        "what waits of a peer is not bounded",
        BOARD,
        "if self.waiting and self.waiting + size > most:",
        "if False:",
        test=FLOOD_TEST,
    ),
    one("a small frame takes no room", BOARD, "        size += FRAME_BYTES\n", "", test=FLOOD_TEST),
    one("what is taken makes no room", BOARD, "self.back.append(int(self))", "pass", test=FLOOD_TEST),
    one(
        "a worker may speak for another",
        BOARD,
        'return not name or name == f"{slot}#{incarnation}"',
        "return True",
        test=FLOOD_TEST,
    ),
    one(
        "a thread that failed is gone",
        "topology_runtime/platform/kept_threads.py",
        "AGAIN_MOST_S))\n            return True",
        "AGAIN_MOST_S))\n            return False",
        test=FLOOD_TEST,
    ),
    one(
        "an agent goes on for whatever run",
        AGENT,
        'return run not in ("", self.run)',
        "return False",
        test="tests/agent/test_agent_state.py",
    ),
    one(
        "what is of another run is counted",
        ADMISSION,
        'if self.run and getattr(message, "run", "") not in ("", self.run):',
        "if False:",
        test=RUN_TEST,
    ),
    one(
        "snapshots of the run before are restored",
        "agent/process/agent_files.py",
        "if before:",
        "if False:",
        test=RUN_TEST,
    ),
    one(
        "code that failed comes back",
        "controller/core/rolling_upgrade.py",
        "if given.back and k.durable.given_up_code:",
        "if False:",
        test="tests/enactment/test_rolling_upgrade.py",
    ),
    one(
        "whoever was cut off comes back at once",
        LIMITS,
        "if of is not None and (not of.settled or now_s < of.until_s):",
        "if of is not None and not of.settled:",
        test=FUZZ_TEST,
    ),
    one(
        "who is cut off comes back while what it sent waits",
        LIMITS,
        "if of is not None and (not of.settled or now_s < of.until_s):",
        "if of is not None and now_s < of.until_s:",
        test=FUZZ_TEST,
    ),
    one(
        "a key may have any number of links",
        LIMITS,
        "if sum(other.key == key for other in list(self.links.values())) > self.links_most:",
        "if False:",
        test=LINKS_TEST,
    ),
    one(
        "what waits unread is not cut off",
        LIMITS,
        "            if waits > max(min(UNREAD_MOST, self.unread_most), self.unread_most - self.held.get(key, 0)):\n",
        "            if waits < 0:\n",
        test=LINKS_TEST,
    ),
    one(
        "what is read does not count as read",
        LIMITS,
        "        link.read += size + WIRE_BYTES\n",
        "",
        test=LINKS_TEST,
    ),
    one(
        "a descriptor is copied and not given back",
        LIMITS,
        "    except OSError:\n        os.close(own)\n        raise\n",
        "    except OSError:\n        raise\n",
        test=LINKS_TEST,
    ),
    one(
        "a listener that reads nothing keeps all",
        CHANNELS,
        "if self.kept and (len(self.kept) >= BEHIND_MOST or self.waiting + len(data) > BEHIND_BYTES):",
        "if False:",
        test=LINKS_TEST,
    ),
    one(
        "a command that nobody meant ends the controller",
        "controller/core/commands.py",
        "    except Exception as error:  # of arguments",
        "    except ZeroDivisionError as error:  # of arguments",
        test=FUZZ_TEST,
    ),
    one(
        "Ctrl-C of a key function ends a worker",
        f"{WORKER}/process/task_thread.py",
        "            ends=(),\n            exactly",
        "            exactly",
        test=RAISED_TEST,
    ),
    one(
        "a key function that stops early loses keys",
        ROUTER,
        "            if len(keys) == len(rows):  # else it raised StopIteration\n                ranges",
        "            if True:  # else it raised StopIteration\n                ranges",
        test=RAISED_TEST,
    ),
    one(
        "what a task started in its loop ends the worker",
        f"{WORKER}/process/async_calls.py",
        "        if isinstance(error, self._watch.ends):\n            raise error\n",
        "        raise error\n",
        test=RAISED_TEST,
    ),
    one(
        "an error that cannot say what it is ends the thread",
        "topology_runtime/wording.py",
        '    except BaseException:\n        return f"{type(error)',
        '    except ZeroDivisionError:\n        return f"{type(error)',
        test=RAISED_TEST,
    ),
    one(
        "a keyed task that does not open stays where it is",
        "topology_runtime/api/topology.py",
        "        return not (self.exclusive or self.spooled)\n",
        '        return not (self.exclusive or self.spooled or self.state == "keyed")\n',
        test=NOT_RUN_TEST,
    ),
    one(
        "back, and back, and back",
        EXECUTOR,
        "failed = [] if stand.planned.undoes else _fresh_failures(stand)",
        "failed = _fresh_failures(stand)",
        test=NOT_RUN_TEST,
    ),
    one(
        "a slot that rested is never used again",
        "agent/core/slot_state.py",
        "if not self.desired and rested_ns >= free_ns",
        "if False and rested_ns >= free_ns",
        test="tests/agent/test_agent_state.py",
    ),
)
