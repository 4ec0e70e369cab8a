"""The commands, with kubectl's own flags, which may stand anywhere."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import List, Optional, Sequence, Tuple


def _missing(error: ModuleNotFoundError) -> str:
    """Raises it again when it is none of ours."""
    if error.name not in ("click", "httpx", "yaml"):
        raise error
    return f"error: {error.name} is missing: pip install './reporter[cli]' in a checkout (docs/terminal.md)"


try:
    import click

    from trainjob_client.errors import ApiError, ClientError

    from .api import Api
    from .flags import ReaderGone, kubectl_flags
except ModuleNotFoundError as error:
    sys.exit(_missing(error))

OUTPUTS = ("json", "yaml", "wide", "name")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def commands() -> None:
    """Progress of training jobs.

    Without a command: the list of jobs, or with a name that one job. A job is NAME, KIND/NAME, or a name
    from the list of all kinds, such as pytorchjobs.bert.
    """


@commands.command()
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("-o", "--output", type=click.Choice(OUTPUTS), help="Another form.")
@click.option("-w", "--watch", is_flag=True, help="Follow changes until Ctrl-C.")
@click.option("--no-headers", is_flag=True, help="Without the heads of columns.")
@kubectl_flags
def get(api: Api, jobs: Tuple[str, ...], output: Optional[str], watch: bool, no_headers: bool) -> int:
    """The list of jobs, or one job."""
    from . import listing

    api.flags["no_headers"] = no_headers
    if watch:
        from .following import follow, follow_one

        if not jobs:
            return follow(api, output or "")
    if not jobs:
        return listing.print_list(api, output or "")
    from trainjob_client.requests import GROUP, path_of

    from .showing import show

    for index, word in enumerate(jobs):
        place, document = api.find(word)
        if output in ("json", "yaml"):
            listing.print_raw(api, path_of(place.resource, place.namespace, place.name), output)
        elif output == "name":
            print(f"{listing.singular(place.resource)}.{GROUP}/{place.name}")
        elif watch:
            follow_one(api, place, document)
        else:
            print(end="\n" if index else "")
            show(api, place, document)
    return 0


@commands.command()
@click.argument("job")
@click.option("-m", "--metric", multiple=True, metavar="NAME", help="Only this metric; may be repeated.")
@click.option("--since", metavar="TIME", default="", help="A time, or a duration before now such as 1h.")
@click.option("-o", "--output", type=click.Choice(("csv", "json", "ndjson", "yaml")), help="In a pipe: csv.")
@kubectl_flags
def history(api: Api, job: str, metric: Tuple[str, ...], since: str, output: Optional[str]) -> int:
    """The curves of a job's metrics."""
    from .reading import history as print_history

    print_history(api, api.find(job)[0], metric, since, output or "")
    return 0


@commands.command()
@click.argument("job")
@click.option(
    "--tail", "lines", type=click.IntRange(1, 1000), default=50, help="How many lines; default: 50."
)
@click.option("-p", "--previous", is_flag=True, help="Of the run before the present one.")
@click.option("--raw", is_flag=True, help="JSON lines as they are.")
@kubectl_flags
def logs(api: Api, job: str, lines: int, previous: bool, raw: bool) -> int:
    """The last lines of what failed first, or of rank 0. The line that says why is marked."""
    from .reading import logs as print_logs

    print_logs(api, api.find(job)[0], lines, previous or None, raw)
    return 0


@commands.command()
@click.argument("job")
@click.option(
    "--until",
    default="done",
    metavar="WHAT",
    help="done, ended, 50%, 'loss<0.3', stalled, ...; default: done.",
)
@click.option("--timeout", default="30s", metavar="TIME", help="Such as 12h; 0 looks once; default: 30s.")
@kubectl_flags
def wait(api: Api, job: str, until: str, timeout: str) -> int:
    """Wait for a job. Exit code: 0 reached, 1 error, 3 ended otherwise, 4 time is over."""
    from .terminal import harmless
    from .waiting import read_duration, read_until, wait as wait_for

    gc.enable()
    holds, seconds = read_until(until), read_duration(timeout)
    code, text = wait_for(api, job, holds, seconds)
    text = harmless(text)
    print(text if code == 0 else f"error: {text}", file=sys.stdout if code == 0 else sys.stderr)
    return code


@commands.command()
@click.option(
    "--by", default="namespace", metavar="WHAT", help="namespace, queue, kind, nodePool or label:KEY."
)
@click.option("--window", type=click.Choice(("hour", "day", "whole")), default="day", help="Default: day.")
@click.option("-o", "--output", type=click.Choice(("json",)))
@kubectl_flags
def top(api: Api, by: str, window: str, output: Optional[str]) -> int:
    """The fleet by what it wastes."""
    from .reading import top as print_top

    print_top(api, by, window, output or "")
    return 0


@commands.command()
@click.argument("first")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
@kubectl_flags
def compare(api: Api, first: str, others: Tuple[str, ...]) -> int:
    """Jobs beside each other, and their loss at the same steps. A job of the past is jrec/NAME."""
    from .showing import compare as print_all

    print_all(api, [api.find(each) for each in (first, *others)])
    return 0


@commands.command()
@click.argument("job", required=False)
@click.option("-m", "--metric", metavar="NAME", help="Its best value in each run; default for a JOB: a loss.")
@click.option("--since", metavar="TIME", default="", help="Ended since a time, or a duration before now.")
@click.option("--until", metavar="TIME", default="", help="Ended until then.")
@click.option("-o", "--output", type=click.Choice(OUTPUTS), help="Another form.")
@click.option("--no-headers", is_flag=True, help="Without the heads of columns.")
@kubectl_flags
def records(
    api: Api,
    job: Optional[str],
    metric: Optional[str],
    since: str,
    until: str,
    output: Optional[str],
    no_headers: bool,
) -> int:
    """Jobs of the past, also those that are gone. With a JOB or -m its runs side by side."""
    from .records import records as print_records

    api.flags["no_headers"] = no_headers
    times = [(key, value) for key, value in (("since", since), ("until", until)) if value]
    return print_records(api, job, metric, output or "", *times)


@commands.command()
@click.argument("job")
@kubectl_flags
def why(api: Api, job: str) -> int:
    """Why a job is as it is, and what to do."""
    from .reading import why as explain

    explain(*api.find(job))
    return 0


@commands.command()
@kubectl_flags
def check(api: Api) -> int:
    """What lies between you and the progress of your jobs. Exit code 1 with a fault."""
    from .reading import check as look
    from .terminal import terminal, wrap

    code, lines = look(api)
    print("\n".join(wrap(line, terminal().width) for line in lines))
    return code


@commands.command()
@click.option("--port", default=0, help="Of the proxy on this machine; default: a free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@kubectl_flags
def dashboard(api: Api, port: int, no_browser: bool) -> int:
    """The page, through `kubectl proxy`, until Ctrl-C."""
    from .dashboard import serve

    return serve(api, port, no_browser)


@commands.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION]... -- COMMAND...")
def run(words: Tuple[str, ...]) -> int:
    """Run a command here and report what it prints: python -m trainjob_progress.run."""
    # Not by PYTHONPATH, which the command would inherit: in krew's archive are packages that it may have too.
    library = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = f"import sys; sys.path[:] = [*filter(None, sys.path), {library!r}]"
    start = f"{path}; from trainjob_progress.run import main; sys.exit(main())"
    os.execv(sys.executable, [sys.executable, "-c", start, *words])  # noqa: S606
    return 1


def ordered(words: Sequence[str]) -> List[str]:
    """With the command first: kubectl's flags may come before it. Without a command it is `get`."""
    words = _apart(words)
    valued = {"-n", "-l", "-k", "-s", "-o", "-m"}
    for command in commands.commands.values():
        valued |= {
            name
            for each in command.params
            if isinstance(each, click.Option) and not each.is_flag
            for name in each.opts
        }
    index = 0
    while index < len(words) and words[index] != "--":
        word = words[index]
        if not word.startswith("-"):
            if word in commands.commands:
                return [word, *words[:index], *words[index + 1 :]]
            break
        index += 2 if word in valued else 1
    if any(each in ("-h", "--help") for each in words):
        return list(words)
    return ["get", *words]


def _apart(words: Sequence[str]) -> List[str]:
    """`-o=json`, which kubectl takes, as `-o json`. Words of a command to run stay as they are."""
    if words[:1] == ["run"]:
        return list(words)
    end = words.index("--") if "--" in words else len(words)
    found: List[str] = []
    for word in words[:end]:
        found += (
            [word[:2], word[3:]] if len(word) > 2 and word[0] == "-" != word[1] and word[2] == "=" else [word]
        )
    return [*found, *words[end:]]


def main(words: Optional[Sequence[str]] = None) -> int:
    """The exit code."""
    given = list(sys.argv[1:] if words is None else words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names of runs have letters that not every locale has
    name = "kubectl trainjob-progress" if "kubectl-" in os.path.basename(sys.argv[0]) else "trainjob-progress"
    try:
        code = commands.main(ordered(given), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ApiError as error:  # as kubectl says it
        _tell(f"Error from server ({error.reason}): {error.message}")
    except (ClientError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        _tell(f"error: {text}")
    except ModuleNotFoundError as error:  # yaml is loaded for a kubeconfig, httpx for a proxy
        _tell(_missing(error))
    except click.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except (BrokenPipeError, ReaderGone):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return 141
    return 1


def _tell(text: str) -> None:
    """On stderr. A server's words may have a run's in them."""
    from .terminal import harmless

    print("\n".join(map(harmless, text.splitlines())), file=sys.stderr)


def script() -> None:
    """`kubectl-trainjob_progress` and `trainjob-progress`."""
    gc.disable()  # of a list of 5,000 jobs nothing is garbage before the end; what follows jobs enables it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through every `finally`: screens, proxies
    sys.exit(main())
