"""A refusal as DeepSeek words it."""

import re

import msgspec
from msgspec import Struct


class Refusal(Struct, frozen=True):
    """Why a request is not played."""

    message: str
    status: int = 400
    kind: str = "invalid_request_error"
    code: str = "invalid_request_error"

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.code}
        return msgspec.json.encode({"error": error})


class RefusedError(Exception):
    """This request is refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refuse(message: str) -> RefusedError:
    """The usual one: 400, invalid_request_error."""
    return RefusedError(Refusal(message))


def unparsable(error: Exception, size: int) -> RefusedError:
    """For what msgspec could not decode; the place is the byte that it names, else the end."""
    place = re.search(r"\(byte (\d+)\)", str(error))
    column = int(place[1]) + 1 if place else size
    why = str(error).removeprefix("JSON is malformed: ").partition(" (byte")[0]
    return refuse(f"Failed to parse the request body as JSON: {why} at line 1 column {column}")


def misshapen(why: str) -> RefusedError:
    return refuse(f"Failed to deserialize the JSON body into the target type: {why} at line 1 column 1")
