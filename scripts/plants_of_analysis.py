"""Bugs in what an analysis finds, and in policies of a replay."""

from __future__ import annotations

from planting import Plant, one

ANALYSES = "dashboards/analytics/analyses/"
FOUND = "tests/analytics/test_detectors.py"
POLICIES = "tests/replay/test_policies.py"
OFFERS = "tests/enactment/test_offers_taken.py"

OF_ANALYSIS: tuple[Plant, ...] = (
    one(
        "usual is what is usual in a slow run",
        ANALYSES + "episodes.py",
        "USUAL = 0.1",
        "USUAL = 0.5",
        test=FOUND,
    ),
    one(
        "a stall begins when it is over",
        ANALYSES + "episodes.py",
        "- (high_s[first : last + 1] - usual_s)",
        "",
        test=FOUND,
    ),
    one(
        "near episodes are two",
        ANALYSES + "episodes.py",
        "from_s - found[-1].to_s < GAP_S",
        "False",
        test=FOUND,
    ),
    one(
        "a hiccup is an episode",
        ANALYSES + "episodes.py",
        "one.to_s - one.from_s >= LONG_S",
        "True",
        test=FOUND,
    ),
    one(
        "warming up is a leak",
        ANALYSES + "leaks.py",
        "slope.low > 0",
        "slope.value > 0",
        test=FOUND,
    ),
    one(
        "another process is the same life",
        ANALYSES + "leaks.py",
        "(1 - FALLEN) * lives",
        "0 * lives",
        test=FOUND,
    ),
    one(
        "a slot is as fast as its cost",
        ANALYSES + "speeds.py",
        "math.exp(-value)",
        "math.exp(value)",
        test=FOUND,
    ),
    one(
        "what cannot be told is told", ANALYSES + "speeds.py", "if length == 0 or", "if False and", test=FOUND
    ),
    one(
        "a season is whole bins long",
        ANALYSES + "seasons.py",
        "best, least = float(tried), missed",
        "pass",
        test=FOUND,
    ),
    one(
        "a plan need not carry what it is for",
        "controller/plan/carrying.py",
        "if counted or best.prediction.rate_tps >= enough_tps:",
        "if True:",
        test=POLICIES,
    ),
    one(
        "a static plan asks for more than was offered",
        "controller/replaying/policies.py",
        "share *= FIRST_LESS",
        "share *= 1.1",
        test=POLICIES,
    ),
    one(
        "an offer of another run is taken",
        "controller/core/offers.py",
        "given.run != k.settings.run or ",
        "",
        test=OFFERS,
    ),
    one(
        "a stale offer is taken",
        "controller/core/offers.py",
        "if age_s > STALE_S:",
        "if False:",
        test=OFFERS,
    ),
    one(
        "a refit counts from the model before it",
        "controller/core/offers.py",
        "before.time * found.time",
        "found.time",
        test=OFFERS,
    ),
    one(
        "scattered windows prove as much",
        "controller/analyze/refits.py",
        "math.hypot(SPREAD, own)",
        "SPREAD",
        test=OFFERS,
    ),
    one(
        "the same evidence refits a model again",
        "controller/knowledge/folding.py",
        "refit_s=d.refit_s | r.seconds",
        "refit_s=d.refit_s",
        test=OFFERS,
    ),
    one(
        "what was taken and not planned with is forgotten",
        "controller/knowledge/folding.py",
        "refits=d.refits | r.texts",
        "refits={}",
        test=OFFERS,
    ),
    one(
        "a season that is offered is never handed over",
        "controller/core/following.py",
        "self.forecast.hand(handed_of(learned))",
        "pass",
        test=OFFERS,
    ),
    one(
        "a replayed run began in 1970",
        "controller/replaying/recorded.py",
        "self.offer, utc_ns(self.started)",
        "self.offer, 0",
        test=OFFERS,
    ),
)
