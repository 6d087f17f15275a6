"""Places: the identity of a durable call, from where in the tree of tasks it is made and under which name."""

from contextvars import ContextVar


class Branch:
    """A task's place in the tree of tasks, and how often each name was used in it."""

    __slots__ = ("_used", "path")

    # Whether a run undoes in it what it has done.
    is_undo = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._used: dict[str, int] = {}

    def place(self, name: str) -> str:
        """The identity of the next call of this name: its path, the name, and how-many-th it is."""
        nth = self._used[name] = self._used.get(name, 0) + 1
        return f"{self.path}{name}" if nth == 1 else f"{self.path}{name}#{nth}"

    def child(self, title: str) -> "Branch":
        """The branch of the next task of this title."""
        return Branch(self._path_of(title))

    def undo(self) -> "Branch":
        """The branch of the next unwinding."""
        return UndoBranch(self._path_of("undo"))

    def _path_of(self, title: str) -> str:
        key = f"{title}/"
        nth = self._used[key] = self._used.get(key, 0) + 1
        return f"{self.path}{title}/" if nth == 1 else f"{self.path}{title}#{nth}/"


class UndoBranch(Branch):
    """The branch of an unwinding."""

    __slots__ = ()

    is_undo = True


current_branch: ContextVar[Branch] = ContextVar("perdure_branch")


def keyed_place(root: Branch, name: str) -> str:
    """The place of a call that is known by its key, wherever it is made; but an undo is apart from what it undoes."""
    branch = current_branch.get(root)
    return (branch if branch.is_undo else root).place(name)
