"""Bugs in what is believed of peers with good keys, and in telling runs apart."""

from __future__ import annotations

from planted.planting import AGENT, Plant, one

ADMISSION, BOARD = "controller/monitor/admission.py", "topology_runtime/worker/links/switchboard.py"
CONDUCT_TEST, FLOOD_TEST = "tests/controller/test_admission.py", "tests/worker/process/test_flooding_peers.py"
RUN_TEST = "tests/cli/test_run_identity.py"

OF_PEERS: tuple[Plant, ...] = (
    one(
        "a ban ends with the link", ADMISSION, "or now_ns < of.banned_until:", "or False:", test=CONDUCT_TEST
    ),
    one("a small message costs nothing", ADMISSION, "size + self.message_costs", "size", test=CONDUCT_TEST),
    one(
        "what was on its way over an old link is another process",
        ADMISSION,
        "link == of.before and now_ns - of.link_ns > LINKS_APART_NS",
        "link == of.before",
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
)
