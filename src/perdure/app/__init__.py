"""Perdure, the object a program opens, and Run, the handle of a run; their twins for code that does not await."""

from perdure.app.namespaces import Namespaces as Namespaces
from perdure.app.perdure import Perdure as Perdure
from perdure.app.run import Run as Run
from perdure.app.sync.generated import SyncNamespaces as SyncNamespaces
from perdure.app.sync.generated import SyncPerdure as SyncPerdure
from perdure.app.sync.generated import SyncRun as SyncRun
from perdure.diagnostics.explain import Explanation as Explanation
from perdure.views.changes import Change as Change
from perdure.views.check import Check as Check
from perdure.views.namespaces import NamespaceDetail as NamespaceDetail
from perdure.views.namespaces import NamespaceInfo as NamespaceInfo
from perdure.views.outputs import Snapshot as Snapshot
from perdure.views.outputs import StreamItem as StreamItem
from perdure.views.run import DeferredInfo as DeferredInfo
from perdure.views.run import FailedAttempt as FailedAttempt
from perdure.views.run import Page as Page
from perdure.views.run import RunEvent as RunEvent
from perdure.views.run import RunInfo as RunInfo
from perdure.views.run import UndoInfo as UndoInfo
from perdure.views.run import UnreadMessage as UnreadMessage
from perdure.views.run import Wait as Wait
