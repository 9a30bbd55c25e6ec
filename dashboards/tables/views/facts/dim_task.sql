-- One task of a run, with what its model says.
--
-- run | string |  | topology/run
-- task | string |  | task
-- kind | string |  | source, map, hold, sink, …
-- code | string |  | what runs
-- static | boolean |  | its size is fixed
-- weight | double | rows/row | rows that it takes in per row of each source, by selectivities
-- is_source | boolean |  | nothing leads to it
-- is_sink | boolean |  | nothing follows it
-- thread_tps | double | rows/s | most that one thread alone in a slot carries, by its model
-- slot_tps | double | rows/s | most that a slot of its threads carries, by its model
select
  t.run,
  t.task,
  t.kind,
  t.code,
  t.static,
  t.weight,
  t.is_source,
  t.is_sink,
  m.thread_tps,
  m.slot_tps
from tasks t
left join (
  select run, task, max(case when threads = 1 then rate_tps end) as thread_tps, max(rate_tps) as slot_tps
  from models
  group by run, task
) m on m.run = t.run and m.task = t.task
