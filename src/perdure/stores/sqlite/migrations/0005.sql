-- 0005: whether a run got on since its worker was lost is told by the worker that brings it back.
-- Processes of the version before this are to be stopped first: they write a column that goes here.

alter table runs drop column lost_mark;
