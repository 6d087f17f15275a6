"""A failure: what is kept of an error, as a value."""

import msgspec

UNKNOWN_ARGUMENTS = msgspec.Raw(b"null")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error's type as `module.QualifiedName`, its text, and what it takes to make it again.

    `arguments` is JSON; null when the error's own arguments could not be kept.
    """

    type: str
    message: str
    arguments: msgspec.Raw = UNKNOWN_ARGUMENTS
    traceback: str = ""

    @property
    def summary(self) -> str:
        name = self.type.removeprefix("builtins.")
        return f"{name}: {self.message}" if self.message else name
