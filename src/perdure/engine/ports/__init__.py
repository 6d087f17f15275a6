"""The Engine port: one protocol per noun, and an engine that has them as attributes.

client        what people ask for: start, post, cancel, terminate, resume, wait
reader        what everybody may read: runs, their events, attempts and messages
claimer       what a worker asks for: ripe runs, and what other workers have code for
owner         what only the owner of a run may ask for: advance, release, children, notes
forker        new runs with the past of others: retry, fork
outputs       what runs show and publish: snapshots, streams
inspector     what may be in the way of runs: workers and how they are, what is ahead, who holds a row
bulk          what is done to all runs that match a filter
namespaces    which there are, and what is in them
access_keys   the keys that callers of a server show
announcements the workflows that workers ever had
subscriptions runs as they change
remote        workers that work over a server, and what they take and write
schedules     what starts runs at times
outbox        who is told of changes, and what became of that
transactor    code of an activity, run inside a transaction and committed with its outcome

Commands go in, not events: the rules of the kernel are behind this port. What goes in and comes out are values,
so that an engine over HTTP can have the same nouns. A further noun is a protocol with its own file, and an attribute.
A verb that is about a namespace takes it as its first argument; an engine serves all of them.
"""

from perdure.engine.ports.access_keys import AccessKeys, KeyRequest, MadeKey
from perdure.engine.ports.announcements import (
    AnnouncedChannel,
    AnnouncedParameter,
    AnnouncedWorkflow,
    Announcements,
)
from perdure.engine.ports.bulk import Broadcast, BulkAction, BulkActions, Failures, Steering, Tally, Verb
from perdure.engine.ports.claimer import Claimer
from perdure.engine.ports.client import Client
from perdure.engine.ports.engine import Engine
from perdure.engine.ports.forker import Forker, ForkRequest, MergeInput
from perdure.engine.ports.host import Host
from perdure.engine.ports.inspector import Inspector, Liveness, WorkerLife
from perdure.engine.ports.keys import KEEP_MS, STALE_MS, CommandKey, KeptRun, Once, ServerReply, StartedRun
from perdure.engine.ports.namespaces import NamespaceContent, NamespaceRegistry
from perdure.engine.ports.outputs import Outputs
from perdure.engine.ports.owned_run import (
    MAX_UNREAD,
    NO_TENURE,
    Advance,
    Ending,
    HandBack,
    Hold,
    Outlet,
    OwnedRun,
    Park,
    Pause,
    Published,
    Publisher,
    Release,
    StartRequest,
    Tenure,
    secret_there,
)
from perdure.engine.ports.owner import Owner
from perdure.engine.ports.reader import Reader
from perdure.engine.ports.remote_registry import RemoteWorkerRegistry
from perdure.engine.ports.remote_workers import (
    PublishedValue,
    Registration,
    RemoteLease,
    RemoteTask,
    RemoteTasks,
    RemoteWorker,
    Renewal,
)
from perdure.engine.ports.schedules import Backfilled, Declared, ScheduleKeeper
from perdure.engine.ports.subscriptions import RunChange, Subscription, Subscriptions
from perdure.engine.ports.transactor import ActivityCode, Gone, Transacted, Transactor, Unwritten, Written

__all__ = [
    "KEEP_MS",
    "MAX_UNREAD",
    "NO_TENURE",
    "STALE_MS",
    "AccessKeys",
    "ActivityCode",
    "Advance",
    "AnnouncedChannel",
    "AnnouncedParameter",
    "AnnouncedWorkflow",
    "Announcements",
    "Backfilled",
    "Broadcast",
    "BulkAction",
    "BulkActions",
    "Claimer",
    "Client",
    "CommandKey",
    "Declared",
    "Ending",
    "Engine",
    "Failures",
    "ForkRequest",
    "Forker",
    "Gone",
    "HandBack",
    "Hold",
    "Host",
    "Inspector",
    "KeptRun",
    "KeyRequest",
    "Liveness",
    "MadeKey",
    "MergeInput",
    "NamespaceContent",
    "NamespaceRegistry",
    "Once",
    "Outlet",
    "Outputs",
    "OwnedRun",
    "Owner",
    "Park",
    "Pause",
    "Published",
    "PublishedValue",
    "Publisher",
    "Reader",
    "Registration",
    "Release",
    "RemoteLease",
    "RemoteTask",
    "RemoteTasks",
    "RemoteWorker",
    "RemoteWorkerRegistry",
    "Renewal",
    "RunChange",
    "ScheduleKeeper",
    "ServerReply",
    "StartRequest",
    "StartedRun",
    "Steering",
    "Subscription",
    "Subscriptions",
    "Tally",
    "Tenure",
    "Transacted",
    "Transactor",
    "Unwritten",
    "Verb",
    "WorkerLife",
    "Written",
    "secret_there",
]
