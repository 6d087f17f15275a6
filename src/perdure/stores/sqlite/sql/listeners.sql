-- What SQLite is asked of those who listen in its own way.

-- listeners: what is written only while somebody wants it, and until when.
select name, until from listeners;
