-- 0016: attributes can be set from outside.
-- Safe before the new code runs: the column may be empty; old code overwrites what was set from outside.

-- What the code of a run has made of its attributes, when that is not what they are: some were set from outside.
alter table runs add column own_attributes text;
