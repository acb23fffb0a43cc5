"""A refusal as DeepSeek words it."""

import json
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


def unparsable(error: Exception, data: bytes) -> RefusedError:
    """For what msgspec could not decode; the column is the byte that it names, else the end."""
    place = re.search(r"\(byte (\d+)\)", str(error))
    column = int(place[1]) + 1 if place else len(data)
    why = str(error).removeprefix("JSON is malformed: ").partition(" (byte")[0]
    if half := _half_pair(data):
        why = f"{half}: unexpected end of hex escape"
    return refuse(f"Failed to parse the request body as JSON: {why} at line 1 column {column}")


def _half_pair(data: bytes) -> str:
    """Where half a surrogate pair stands, as `messages[3].content`; empty where there is none."""
    try:
        waiting: list[tuple[str, object]] = [("", json.loads(data))]
    except (ValueError, RecursionError):
        return ""
    while waiting:
        place, node = waiting.pop()
        match node:
            case str():
                try:
                    node.encode()
                except UnicodeEncodeError:
                    return place
            case dict():
                waiting += reversed([(f"{place}.{key}".lstrip("."), inner) for key, inner in node.items()])
            case list():
                waiting += reversed([(f"{place}[{at}]", inner) for at, inner in enumerate(node)])
            case _:
                pass
    return ""


def misshapen(why: str) -> RefusedError:
    return refuse(f"Failed to deserialize the JSON body into the target type: {why} at line 1 column 1")
