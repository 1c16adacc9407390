"""Errors of the hub and of its library as ours: what is wrong, where, and what to do about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...api.protocol import InvalidModel
from ...common.suggestions import did_you_mean
from .names import HubName

TOKEN = "set HF_TOKEN to a token of your account, or run `hf auth login`"


class NotOnHub(InvalidModel):
    """The hub has no such model, or does not answer; the name may be that of a folder."""


class HubUnreachable(NotOnHub):
    """The hub cannot be reached now; the cache may suffice."""


def download_command(name: HubName) -> str:
    """What downloads a model where there is a network."""
    pinned = "" if name.revision == "main" else f" --revision {name.revision}"
    return f"`hf download {name.repo}{pinned}`"


@contextmanager
def translated(
    library: Any, name: HubName, endpoint: str, cache: Path, others: Callable[[bool], list[str]]
) -> Iterator[None]:
    """Raises InvalidModel in place of what the library raises. others: names that the hub knows:
    of models like this one, or of this one's revisions (True)."""
    errors, page = library.errors, f"{endpoint}/{name.repo}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise InvalidModel(_gated(name, page, library.get_token() is not None)) from error
    except errors.RepositoryNotFoundError as error:
        hint = did_you_mean(name.repo, others(False))
        raise NotOnHub(
            f"the hub has no model {name.repo!r} that you may see ({page}); "
            f"for a private one {TOKEN}{hint}"
        ) from error
    except errors.RevisionNotFoundError as error:
        known = others(True)
        listed = f"; expected a commit, or one of {', '.join(known[:8])}" if known else ""
        hint = did_you_mean(name.revision, known)
        raise InvalidModel(
            f"{name.repo} has no revision {name.revision!r}{listed}{hint}"
        ) from error
    except errors.DisabledRepoError as error:
        raise InvalidModel(f"{name.repo} was disabled by the hub: see {page}") from error
    except errors.HfHubHTTPError as error:
        raise _of_status(error, name, page, endpoint) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HTTPError) as error:
        cause = error.__cause__
        if isinstance(cause, errors.HfHubHTTPError):
            raise _of_status(cause, name, page, endpoint) from error
        raise unreachable(endpoint, error) from error
    except OSError as error:
        raise _of_system(error, name, cache) from error


def unreachable(endpoint: str, error: BaseException) -> HubUnreachable:
    """The error where a hub does not answer."""
    while error.__cause__ is not None:  # the library wraps the network's error in its own
        error = error.__cause__
    message = str(error).strip().splitlines() or [type(error).__name__]
    return HubUnreachable(f"the hub ({endpoint}) cannot be reached: {message[0]}")


def disk_full(name: HubName, needed: str, free: str, cache: Path) -> InvalidModel:
    """The error where a disk is too small."""
    message = f"{name} needs {needed} of disk, and {cache} has {free} free"
    return InvalidModel(f"{message}; set HF_HUB_CACHE to a folder on a larger disk")


def _gated(name: HubName, page: str, has_token: bool) -> str:
    if has_token:
        message = "the account of your token has no access yet: ask for it, or accept its licence,"
        return f"{name.repo} is gated, and {message} at {page}"
    return f"{name.repo} is gated: accept its licence at {page}, then {TOKEN}"


def _of_status(error: Any, name: HubName, page: str, endpoint: str) -> InvalidModel:
    status = error.response.status_code
    if status == 401:
        return InvalidModel(f"{endpoint} does not accept your token: {TOKEN}")
    if status == 403:
        return InvalidModel(f"your token may not read {name.repo} ({page}): {TOKEN}")
    if status == 404:
        return InvalidModel(f"{name} lacks a file that it lists: {error.response.url}")
    if status == 429:
        return HubUnreachable(f"{endpoint} answers no more requests for now (429): {TOKEN}")
    return HubUnreachable(f"{endpoint} answered with status {status}")


def _of_system(error: OSError, name: HubName, cache: Path) -> InvalidModel:
    if error.errno == errno.ENOSPC:
        return disk_full(name, "more room", "none", cache)
    if isinstance(error, PermissionError):
        remedy = "set HF_HUB_CACHE to a folder that you may write to"
        return InvalidModel(f"{error.filename or cache} cannot be written; {remedy}")
    message = os.strerror(error.errno) if error.errno else str(error).strip()
    return InvalidModel(f"{name} could not be downloaded: {message}; run it again to resume")
