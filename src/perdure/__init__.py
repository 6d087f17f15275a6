"""Perdure: a durable workflow engine for Python.

Public names only, each imported when it is first used: `import perdure` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "perdure.app": (
        "Backfilled Bulk BulkError Change Check DeadLetter Decision DeferredInfo DutyInfo Explanation FailedAttempt "
        "Handled KeyInfo Keys MadeKey NamespaceDetail NamespaceInfo Namespaces Outbox Page Perdure Processed "
        "QueueInfo Queues Run RunEvent RunInfo ScheduleInfo Schedules SinkInfo Snapshot StreamItem SyncKeys "
        "SyncNamespaces SyncOutbox SyncPerdure SyncQueues SyncRun SyncSchedules SyncWorkers Tick UndoInfo "
        "UnreadMessage Wait WorkerInfo WorkerStats Workers"
    ),
    "perdure.authoring.activity": "Activity activity",
    "perdure.authoring.activity_context": "Attempt attempt heartbeat resource",
    "perdure.authoring.calls": (
        "at continue_as_new expose info interrupted now patched rng select set_attributes side_effect sleep uuid4"
    ),
    "perdure.authoring.deferreds": "Deferred",
    "perdure.authoring.info": "Info",
    "perdure.authoring.requests": "Asked Request",
    "perdure.authoring.signals": "Signal",
    "perdure.authoring.undo": "Undo undo unwind",
    "perdure.authoring.streams": "Stream",
    "perdure.authoring.workflow": "BoundCall Workflow workflow",
    "perdure.errors": (
        "ActivityFailed AlreadyResolved AnotherLoop AttemptLost BadArguments BadFilter BadForkPoint BadId BadInput "
        "BadOption BadSchedule BadSink BadToken BadValue ChildFailed CursorExpired DeferredFailed DuplicateName "
        "IdConflict InboxFull KeyAlreadyMade KeyConflict KeyInProgress NamespaceExists NamespaceNotEmpty "
        "NamespaceNotFound NeverAwaited NewerSchema NotADatabase NotAllowedInWorkflow NotAnswered NotInActivity "
        "NotInWorkflow NotOpen OpenElsewhere PerdureError QueryNotFound RequestRefused ResourceNotFound RunCancelled "
        "RunClosed RunEnded RunFailed RunNotFound RunNotHeld RunOpen RunTerminated RunTimedOut RunUnreadable "
        "ScheduleExists ScheduleNotFound SinkExists SinkFailed SinkNotFound SinkNotReady StoreError StoreUnavailable "
        "StreamFull TransactionEnded UnknownWorkflow ValueTooLarge WouldDeadlock"
    ),
    "perdure.http.access": "Caller",
    "perdure.kernel.conflict": "OnConflict",
    "perdure.kernel.retry": "Retry",
    "perdure.kernel.status": "Status",
    "perdure.kernel.timetables": "At Cron Every",
    "perdure.kernel.traits": "OnParentClose",
    "perdure.authoring.sinks": "sink",
    "perdure.engine.outbox.sinks": "Log Webhook",
    "perdure.kernel.outbox": "OutboxEvent",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__version__ = "0.1.0"
__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - the names stand above, once


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOME_OF, "__version__"])


if TYPE_CHECKING:
    from perdure.app import Backfilled as Backfilled
    from perdure.app import Bulk as Bulk
    from perdure.app import BulkError as BulkError
    from perdure.app import Change as Change
    from perdure.app import Check as Check
    from perdure.app import DeadLetter as DeadLetter
    from perdure.app import Decision as Decision
    from perdure.app import DeferredInfo as DeferredInfo
    from perdure.app import DutyInfo as DutyInfo
    from perdure.app import Explanation as Explanation
    from perdure.app import FailedAttempt as FailedAttempt
    from perdure.app import Handled as Handled
    from perdure.app import KeyInfo as KeyInfo
    from perdure.app import Keys as Keys
    from perdure.app import MadeKey as MadeKey
    from perdure.app import NamespaceDetail as NamespaceDetail
    from perdure.app import NamespaceInfo as NamespaceInfo
    from perdure.app import Namespaces as Namespaces
    from perdure.app import Outbox as Outbox
    from perdure.app import Page as Page
    from perdure.app import Perdure as Perdure
    from perdure.app import Processed as Processed
    from perdure.app import QueueInfo as QueueInfo
    from perdure.app import Queues as Queues
    from perdure.app import Run as Run
    from perdure.app import RunEvent as RunEvent
    from perdure.app import RunInfo as RunInfo
    from perdure.app import ScheduleInfo as ScheduleInfo
    from perdure.app import Schedules as Schedules
    from perdure.app import SinkInfo as SinkInfo
    from perdure.app import Snapshot as Snapshot
    from perdure.app import StreamItem as StreamItem
    from perdure.app import SyncKeys as SyncKeys
    from perdure.app import SyncNamespaces as SyncNamespaces
    from perdure.app import SyncOutbox as SyncOutbox
    from perdure.app import SyncPerdure as SyncPerdure
    from perdure.app import SyncQueues as SyncQueues
    from perdure.app import SyncRun as SyncRun
    from perdure.app import SyncSchedules as SyncSchedules
    from perdure.app import SyncWorkers as SyncWorkers
    from perdure.app import Tick as Tick
    from perdure.app import UndoInfo as UndoInfo
    from perdure.app import UnreadMessage as UnreadMessage
    from perdure.app import Wait as Wait
    from perdure.app import WorkerInfo as WorkerInfo
    from perdure.app import Workers as Workers
    from perdure.app import WorkerStats as WorkerStats
    from perdure.authoring.activity import Activity as Activity
    from perdure.authoring.activity import activity as activity
    from perdure.authoring.activity_context import Attempt as Attempt
    from perdure.authoring.activity_context import attempt as attempt
    from perdure.authoring.activity_context import heartbeat as heartbeat
    from perdure.authoring.activity_context import resource as resource
    from perdure.authoring.calls import at as at
    from perdure.authoring.calls import continue_as_new as continue_as_new
    from perdure.authoring.calls import expose as expose
    from perdure.authoring.calls import info as info
    from perdure.authoring.calls import interrupted as interrupted
    from perdure.authoring.calls import now as now
    from perdure.authoring.calls import patched as patched
    from perdure.authoring.calls import rng as rng
    from perdure.authoring.calls import select as select
    from perdure.authoring.calls import set_attributes as set_attributes
    from perdure.authoring.calls import side_effect as side_effect
    from perdure.authoring.calls import sleep as sleep
    from perdure.authoring.calls import uuid4 as uuid4
    from perdure.authoring.deferreds import Deferred as Deferred
    from perdure.authoring.info import Info as Info
    from perdure.authoring.requests import Asked as Asked
    from perdure.authoring.requests import Request as Request
    from perdure.authoring.signals import Signal as Signal
    from perdure.authoring.sinks import sink as sink
    from perdure.authoring.streams import Stream as Stream
    from perdure.authoring.undo import Undo as Undo
    from perdure.authoring.undo import undo as undo
    from perdure.authoring.undo import unwind as unwind
    from perdure.authoring.workflow import BoundCall as BoundCall
    from perdure.authoring.workflow import Workflow as Workflow
    from perdure.authoring.workflow import workflow as workflow
    from perdure.engine.outbox.sinks import Log as Log
    from perdure.engine.outbox.sinks import Webhook as Webhook
    from perdure.errors import ActivityFailed as ActivityFailed
    from perdure.errors import AlreadyResolved as AlreadyResolved
    from perdure.errors import AnotherLoop as AnotherLoop
    from perdure.errors import AttemptLost as AttemptLost
    from perdure.errors import BadArguments as BadArguments
    from perdure.errors import BadFilter as BadFilter
    from perdure.errors import BadForkPoint as BadForkPoint
    from perdure.errors import BadId as BadId
    from perdure.errors import BadInput as BadInput
    from perdure.errors import BadOption as BadOption
    from perdure.errors import BadSchedule as BadSchedule
    from perdure.errors import BadSink as BadSink
    from perdure.errors import BadToken as BadToken
    from perdure.errors import BadValue as BadValue
    from perdure.errors import ChildFailed as ChildFailed
    from perdure.errors import CursorExpired as CursorExpired
    from perdure.errors import DeferredFailed as DeferredFailed
    from perdure.errors import DuplicateName as DuplicateName
    from perdure.errors import IdConflict as IdConflict
    from perdure.errors import InboxFull as InboxFull
    from perdure.errors import KeyAlreadyMade as KeyAlreadyMade
    from perdure.errors import KeyConflict as KeyConflict
    from perdure.errors import KeyInProgress as KeyInProgress
    from perdure.errors import NamespaceExists as NamespaceExists
    from perdure.errors import NamespaceNotEmpty as NamespaceNotEmpty
    from perdure.errors import NamespaceNotFound as NamespaceNotFound
    from perdure.errors import NeverAwaited as NeverAwaited
    from perdure.errors import NewerSchema as NewerSchema
    from perdure.errors import NotADatabase as NotADatabase
    from perdure.errors import NotAllowedInWorkflow as NotAllowedInWorkflow
    from perdure.errors import NotAnswered as NotAnswered
    from perdure.errors import NotInActivity as NotInActivity
    from perdure.errors import NotInWorkflow as NotInWorkflow
    from perdure.errors import NotOpen as NotOpen
    from perdure.errors import OpenElsewhere as OpenElsewhere
    from perdure.errors import PerdureError as PerdureError
    from perdure.errors import QueryNotFound as QueryNotFound
    from perdure.errors import RequestRefused as RequestRefused
    from perdure.errors import ResourceNotFound as ResourceNotFound
    from perdure.errors import RunCancelled as RunCancelled
    from perdure.errors import RunClosed as RunClosed
    from perdure.errors import RunEnded as RunEnded
    from perdure.errors import RunFailed as RunFailed
    from perdure.errors import RunNotFound as RunNotFound
    from perdure.errors import RunNotHeld as RunNotHeld
    from perdure.errors import RunOpen as RunOpen
    from perdure.errors import RunTerminated as RunTerminated
    from perdure.errors import RunTimedOut as RunTimedOut
    from perdure.errors import RunUnreadable as RunUnreadable
    from perdure.errors import ScheduleExists as ScheduleExists
    from perdure.errors import ScheduleNotFound as ScheduleNotFound
    from perdure.errors import SinkExists as SinkExists
    from perdure.errors import SinkFailed as SinkFailed
    from perdure.errors import SinkNotFound as SinkNotFound
    from perdure.errors import SinkNotReady as SinkNotReady
    from perdure.errors import StoreError as StoreError
    from perdure.errors import StoreUnavailable as StoreUnavailable
    from perdure.errors import StreamFull as StreamFull
    from perdure.errors import TransactionEnded as TransactionEnded
    from perdure.errors import UnknownWorkflow as UnknownWorkflow
    from perdure.errors import ValueTooLarge as ValueTooLarge
    from perdure.errors import WouldDeadlock as WouldDeadlock
    from perdure.http.access import Caller as Caller
    from perdure.kernel.conflict import OnConflict as OnConflict
    from perdure.kernel.outbox import OutboxEvent as OutboxEvent
    from perdure.kernel.retry import Retry as Retry
    from perdure.kernel.status import Status as Status
    from perdure.kernel.timetables import At as At
    from perdure.kernel.timetables import Cron as Cron
    from perdure.kernel.timetables import Every as Every
    from perdure.kernel.traits import OnParentClose as OnParentClose
