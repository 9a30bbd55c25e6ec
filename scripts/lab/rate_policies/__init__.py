"""Policies against rates in virtual time: who would have needed how many slots, and who would have been late.

    series        rates from files, and made ones by name and seed
    deciders      what rate to plan for, and when: ours, and those that it is held against   (pure)
    world         plans in force and rows that wait, second by second                        (pure)
    policy_score  what a policy needed and what it failed to carry                           (pure)
    chart         what one of them planned, drawn
    shadows       policies beside a run, and the row for what it did                         (pure)
    trying        policies with series, and what came of it: rows, ranks, curves

`replaying` tries allocators and mappers with the whole loop on the offer of a recorded run; here the rule that
follows the rate is tried, on any rates, thousands of seconds in one. Both plan by `core.decide.choose`.
"""

from __future__ import annotations
