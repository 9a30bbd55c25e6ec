"""What a controller has a source thread send again passes through its agent, and what comes of it."""

from __future__ import annotations

from agent_world import BOOT, Mind, only, slot, thread

from headgate.agent import events as e
from headgate.topology_runtime.letters import SendAgain, SentAgain


def test_what_is_to_be_sent_again_goes_to_the_worker_that_it_is_for() -> None:
    mind = Mind()
    mind.want(thread(1, 0))
    mind.up()
    boot, here = mind.state.controller_boot, mind.incarnation()
    said = SendAgain(boot, slot(0), here, 1, (3,))
    assert only(mind.tell(said), e.PassOn) == [e.PassOn(slot(0), here, said)]
    for other in (SendAgain(boot - 1, slot(0), here, 1, ()), SendAgain(boot, slot(0), here - 1, 1, ())):
        assert not only(mind.tell(other), e.PassOn)


def test_what_became_of_it_is_told_with_the_worker_and_gone_with_it() -> None:
    mind = Mind()
    mind.want(thread(1, 0))
    mind.up()
    again = (SentAgain(1, 7, (3,), (4,)),)
    (sent,) = only([*mind.report(again=again), *mind.tick(0.1)], e.SendReport)
    assert sent.report.workers[0].again == again and sent.report.boot == BOOT
    mind.dies()
    assert not mind.told().workers[0].again
