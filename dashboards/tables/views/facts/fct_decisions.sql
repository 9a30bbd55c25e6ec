-- Every decision of the controller, those that led to nothing too.
--
-- run | string |  | topology/run
-- number | bigint |  | from 1 in their order
-- time | timestamp |  | when it was taken (UTC)
-- at_s | double | s | since the run began
-- epoch | bigint |  | number of the plan it led to, or of the one in force
-- trigger | string |  | the rule that applied
-- action | string |  | plan: there is a new one; none: nothing to do
-- text | string |  | in a sentence
-- plan | string |  | id of its plan
-- evidence | string |  | the numbers it stands on, as JSON
select
  d.run,
  d.number,
  d.time,
  (unix_micros(d.time) - unix_micros(r.begun)) / 1e6 as at_s,
  coalesce(d.plan_epoch, d.epoch) as epoch,
  d.trigger,
  d.action,
  d.text,
  d.plan,
  d.evidence
from decisions d
join runs r on r.run = d.run
