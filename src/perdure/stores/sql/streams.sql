-- What every database is asked of streams, with the types of parameters that are not text.

-- stream_page: the values of a stream after a number.
select n, attempt, at, body
  from streams
 where run_id = :run_id
   and name = :name
   and n > :after::bigint
 order by n
 limit :limit::bigint;

-- stream_begin: the number after which the values of a stream begin in a run; earlier ones are in those it continues.
select coalesce(
         (select min(n) - 1 from streams where run_id = :run_id and name = :name),
         (select n from stream_heads where run_id = :run_id and name = :name and source = ''),
         0
       );
