"""Bugs in VMs that are cut off or stand still, and in keys that are rotated."""

from __future__ import annotations

from planted.planting import Plant, one

AGENT, MEMBERS = "agent/core/agent_state.py", "controller/knowledge/membership.py"
UPLINK, KEYRING = "agent/reports/uplink.py", "topology_runtime/keys/keyring.py"
CONTACT_TEST, MEMBERS_TEST = "tests/agent/test_vm_contact.py", "tests/controller/test_membership.py"
CUT_TEST, KEYS_TEST = "tests/simulation/test_cut_off_vms.py", "tests/keys/test_keyring.py"
UPLINK_TEST = "tests/agent/test_uplink.py"

OF_PARTITIONS: tuple[Plant, ...] = (
    one(
        "contact counts from when its answer came",
        AGENT,
        "self.contact.answered(sent_ns, welcome.fenced)",
        "self.contact.answered(self._heard_ns, welcome.fenced)",
        test=CONTACT_TEST,
    ),
    one(
        "whoever is heard vouches, near to the controller or not",
        AGENT,
        "now_ns - heard_ns < FRESH_NS and contact_ns <= self.last_ns + NEWER_NS",
        "now_ns - heard_ns < FRESH_NS",
        test=CONTACT_TEST,
    ),
    one(
        "a VM that is silent vouches",
        AGENT,
        "now_ns - heard_ns < FRESH_NS and contact_ns <= self.last_ns + NEWER_NS",
        "contact_ns <= self.last_ns + NEWER_NS",
        test=CONTACT_TEST,
    ),
    one(
        "a VM that is held dead is vouched for",
        AGENT,
        "if not self.fenced and now_ns",
        "if now_ns",
        test=CONTACT_TEST,
    ),
    one(
        "an answer to a VM that is held dead lets it work",
        AGENT,
        "self.until_ns = 0 if fenced else",
        "self.until_ns =",
        test=CONTACT_TEST,
    ),
    one(
        "pings do not say how old the contact is",
        "topology_runtime/worker/orders/worker_state.py",
        "contact_ms=max(0, now_ns - self.contact_ns) // MS if self.contact_ns else -1,",
        "contact_ms=-1,",
        test=CUT_TEST,
    ),
    one(
        "keyed state is waited for no longer than the rest",
        MEMBERS,
        "(LOST_KEYED_NS if name in self.keyed else LOST_NS)",
        "LOST_NS",
        test=MEMBERS_TEST,
    ),
    one(
        "who makes up for a silence is overloaded",
        MEMBERS,
        "SETTLE_NS + 2 * lasted_ns",
        "0",
        test=MEMBERS_TEST,
    ),
    one(
        "an old key ends when a new one is made",
        KEYRING,
        "last = msgspec.structs.replace(held, until=until)",
        "last = msgspec.structs.replace(held, until=until, revoked=until)",
        test=KEYS_TEST,
    ),
    one(
        "an old key counts for ever",
        KEYRING,
        "if not k.revoked and (not k.until or now < k.until)",
        "if not k.revoked",
        test=KEYS_TEST,
    ),
    one(
        "the end of an overlap is not looked at",
        KEYRING,
        "not (self._ends and utc_iso(time.time_ns()) >= self._ends)",
        "True",
        test=KEYS_TEST,
    ),
    one(
        "both keys of a controller are tried over one spelling of where it is",
        "topology_runtime/wire/channels.py",
        "socket.connect(_spelled_otherwise(contact.endpoint))",
        "socket.connect(contact.endpoint)",
        test=KEYS_TEST,
    ),
    one(
        "what the old connection brought last is dropped",
        UPLINK,
        "        while (data := self.channel.receive_bytes()) is not None:\n            self._came.append(data)\n",
        "",
        test=UPLINK_TEST,
    ),
)
