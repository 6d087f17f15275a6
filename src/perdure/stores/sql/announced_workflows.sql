-- What every database is asked of announced workflows, with the types of parameters that are not text.

-- announce_workflow: a worker has this workflow, as it is now.
insert into announced_workflows (namespace, name, body, digest, announced_at)
values (:namespace, :name, :body, :digest, :at::bigint)
    on conflict (namespace, name) do update
   set body = excluded.body,
       digest = excluded.digest,
       announced_at = excluded.announced_at;

-- announced_digests: what each workflow of a namespace was when it was announced last.
select name, digest from announced_workflows where namespace = :namespace;

-- announced: one workflow.
select body from announced_workflows where namespace = :namespace and name = :name;

-- delete_announced: those of a namespace that is deleted.
delete from announced_workflows
 where namespace = :namespace;
