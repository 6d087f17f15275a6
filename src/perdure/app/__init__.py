"""Perdure, the object a program opens, and Run, the handle of a run; their twins for code that does not await."""

from perdure.app.perdure import Perdure as Perdure
from perdure.app.perdure import store_for as store_for
from perdure.app.run import Run as Run
from perdure.app.sync import SyncPerdure as SyncPerdure
from perdure.app.sync import SyncRun as SyncRun
from perdure.app.views import FailedAttempt as FailedAttempt
from perdure.app.views import Page as Page
from perdure.app.views import RunEvent as RunEvent
from perdure.app.views import RunInfo as RunInfo
from perdure.app.views import UnreadMessage as UnreadMessage
from perdure.app.views import Wait as Wait
