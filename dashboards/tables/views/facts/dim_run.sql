-- One run.
--
-- run | string |  | topology/run
-- topology | string |  | topology
-- name | string |  | the run alone
-- allocator | string |  | how threads and slots were counted
-- mapper | string |  | how threads were put into slots
-- mode | string |  | auto, approve or advise
-- started | timestamp |  | when the run began (UTC)
-- ended | timestamp |  | end of the last window that was recorded
-- seconds | double | s | from its begin to the end of the last window: how long it ran, however much was recorded
-- tasks | bigint | tasks | of the topology
-- vms | bigint | VMs | that the run had, or began with
select
  r.run,
  r.topology,
  r.name,
  r.allocator,
  r.mapper,
  r.mode,
  r.started,
  r.ended,
  (unix_micros(r.ended) - unix_micros(r.begun)) / 1e6 as seconds,
  (select count(*) from tasks t where t.run = r.run) as tasks,
  (select count(*) from dim_vm v where v.run = r.run) as vms
from runs r
