"""`-w`: the API's own watch. A terminal is drawn anew; elsewhere each job that has changed has a line."""

from __future__ import annotations

import gc
import json
import sys
import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Dict, List, Optional, Sequence, Tuple, Union

from trainjob_client.ages import later
from trainjob_client.errors import ClientError, NotFoundError
from trainjob_client.requests import JSON, RECORDS, path_of
from trainjob_client.watching import Event, Item, Key, Watching, key_of

from .api import TABLE, Api, Place, UsageError
from .listing import Lines, Row, heads_of, hidden_of, names_of, read_row
from .showing import show
from .terminal import cut, harmless, terminal

_AGES_S = 1.0  # so often ages are drawn anew
_PAUSE_S = 0.2  # between two drawings
_OF_THE_CLOCK = {"SEEN": 1, "AGE": 1, "ETA": -1}


class Feed:
    """A watch that a thread reads, since a screen is drawn anew without news as well."""

    def __init__(
        self,
        api: Api,
        path: str,
        parameters: Sequence[Tuple[str, str]],
        accept: str = JSON,
        known: Sequence[Item] = (),
    ) -> None:
        self.watching = Watching(path, parameters, accept, known=known)
        self.trouble = ""  # why nothing comes just now
        self._session = api.session
        self._queue: SimpleQueue[Union[Event, BaseException, str]] = SimpleQueue()
        Thread(target=self._read, name="watch", daemon=True).start()

    def _read(self) -> None:
        def tell(error: Optional[ClientError]) -> None:
            self._queue.put("" if error is None else f"{error} Trying again.")

        try:
            for event in self._session.watch(self.watching, tell):
                self._queue.put(event)
        except BaseException as error:
            self._queue.put(error)

    def news(self, timeout_s: float = _AGES_S) -> List[Event]:
        """What has come; the first is waited for. Raises what the watch has ended with."""
        events: List[Event] = []
        try:
            while True:
                has_all = bool(events) and events[-1].resource_version is not None
                found = self._queue.get(timeout=0.0 if has_all else timeout_s)
                if isinstance(found, BaseException):
                    raise found
                if isinstance(found, Event):
                    events.append(found)
                else:
                    self.trouble, timeout_s = found, 0.0
        except Empty:
            return events


def follow(api: Api, output: str) -> int:
    """The list, until Ctrl-C."""
    gc.enable()
    _refuse_records(api.plural(api.flags.get("kind")))
    if output == "yaml":
        raise UsageError("-w is for lists, and -o json, name and wide.")
    if output == "json":
        for event in api.session.watch(Watching(api.list_path(), api.selection())):
            print(json.dumps(event.item, indent=4, ensure_ascii=False), flush=True)
        return 0
    feed = Feed(api, api.list_path(), api.selection(), TABLE)
    if terminal().is_terminal and output != "name":
        _draw(api, feed, is_wide=output == "wide")
    _print(api, feed, output)
    return 0


def _print(api: Api, feed: Feed, output: str) -> None:
    """A line for each job, then one for each that has changed by more than its ages."""
    told: Dict[Key, Row] = {}
    lines: Optional[Lines] = None
    while True:
        news: List[Row] = []
        for event in feed.news():
            row, key = read_row(event.item, heads_of(feed.watching.columns)), key_of(event.item)
            lasting = {head: cell for head, cell in row.items() if head not in _OF_THE_CLOCK}
            if event.type == "DELETED":
                told.pop(key, None)
            elif told.get(key) != lasting:
                told[key] = lasting
                news.append(row)
        if news and output == "name":
            print(*names_of(api, news), sep="\n", flush=True)
        elif news:
            hidden = hidden_of(feed.watching.columns)
            lines = lines or Lines(terminal(), api.flags, hidden, is_wide=output == "wide")
            print(*lines.of(news, has_more=True), sep="\n", flush=True)


def _draw(api: Api, feed: Feed, *, is_wide: bool) -> None:
    """The whole screen. What does not fit is counted."""
    held: Dict[Key, Tuple[Item, float]] = {}
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            for event in feed.news():
                if event.type == "DELETED":
                    held.pop(key_of(event.item), None)
                else:
                    held[key_of(event.item)] = event.item, time.monotonic()
            shown, now = terminal(), time.monotonic()
            room = max(1, shown.height - 2)
            first = [held[key] for key in sorted(held)[:room]]
            heads, hidden = heads_of(feed.watching.columns), hidden_of(feed.watching.columns)
            rows = [_aged(read_row(item, heads), now - since) for item, since in first]
            lines = Lines(shown, api.flags, hidden, is_wide=is_wide)
            drawn = lines.of(rows) if rows else ["No jobs."]
            if len(held) > room:
                drawn[room:] = [f"and {len(held) - room + 1} more"]
            drawn.append(cut(harmless(feed.trouble), (shown.width or 80) - 1))
            text = "\n".join(f"{line}\x1b[K" for line in drawn[: shown.height])
            sys.stdout.write(f"\x1b[H{text}\x1b[J")
            sys.stdout.flush()
            time.sleep(_PAUSE_S)
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _aged(row: Row, seconds: float) -> Row:
    """The cells that follow the clock, so long after the server has said them."""
    aged = {each: later(row[each], sign * seconds) for each, sign in _OF_THE_CLOCK.items() if row.get(each)}
    return {**row, **aged}


def follow_one(api: Api, place: Place, document: Item) -> None:
    """One job, from the document that was found, until it has ended or is deleted."""
    gc.enable()
    _refuse_records(place.resource)
    one = [("fieldSelector", f"metadata.name={place.name}")]
    feed = Feed(api, path_of(place.resource, place.namespace), one, known=[document])
    said = ""
    while True:
        if terminal().is_terminal:
            sys.stdout.write("\x1b[H\x1b[2J")
        show(api, place, document)
        print(harmless(said), end="\n" if said else "", flush=True)
        if document["status"]["phase"] in ("Succeeded", "Failed"):
            return
        time.sleep(_AGES_S)  # a screen reads the history
        events = feed.news()
        while not events and feed.trouble == said:
            events = feed.news()
        said = feed.trouble
        if any(event.type == "DELETED" for event in events[-1:]):
            raise NotFoundError(404, "NotFound", f'{place.resource} "{place.name}" was deleted')
        document = events[-1].item if events else document


def _refuse_records(resource: str) -> None:
    if resource == RECORDS:
        raise UsageError("Records do not change, so they cannot be watched: leave out -w.")
