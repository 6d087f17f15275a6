"""A failure: what is kept of an error, as a value."""

import msgspec

UNKNOWN_ARGUMENTS = msgspec.Raw(b"null")
NO_ATTRIBUTES = msgspec.Raw(b"{}")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error's type as `module.QualifiedName`, its text, and what it takes to make it again.

    `arguments` is JSON; null when the error's own arguments could not be kept. `attributes`
    are those of its attributes that could be, `errors` those in an exception group.
    """

    type: str
    message: str
    arguments: msgspec.Raw = UNKNOWN_ARGUMENTS
    traceback: str = ""
    attributes: msgspec.Raw = NO_ATTRIBUTES
    errors: tuple["Failure", ...] = ()

    @property
    def summary(self) -> str:
        name = self.type.removeprefix("builtins.")
        return f"{name}: {self.message}" if self.message else name


def with_notes(failure: Failure, notes: tuple[str, ...]) -> Failure:
    """A failure without attributes of its own, and notes for the error that it becomes."""
    if not notes:
        return failure
    return msgspec.structs.replace(failure, attributes=msgspec.Raw(msgspec.json.encode({"__notes__": notes})))
