"""The MCP server: gives the tools, resources and the prompt their names; the SDK does the rest."""

import functools
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gputop.analysis.answer.report_output import report_to_markdown
from gputop.analysis.causes.cause import every
from gputop.errors import CommandError, GputopError, OutsideSessionError, install_command
from gputop.query import count_tools, graph_tools, verdict_tools
from gputop.query.catalogue import Catalogue
from gputop.query.daemon_recordings import MOST_S, Live
from gputop.query.investigation import INSTRUCTIONS, investigate
from gputop.query.meanings import described
from gputop.query.reply import BEGIN, END, MOST_BYTES, OwnText, marked, untagged

if TYPE_CHECKING:
    from mcp.server import MCPServer


# of what many recordings say: action, by, query, limit, cursor
Fleet = Callable[[str, str, str | None, str | None, int, str | None], str]


def server_of(
    catalogue: Catalogue, version: str, live: Live | None = None, fleet: Fleet | None = None
) -> "MCPServer[Any]":
    """A server over these recordings, with ``live`` over the present, with ``fleet`` over many recordings.

    Raises:
        GputopError: The SDK is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
        from pydantic import Field
    except ImportError as error:
        raise GputopError(f"the MCP SDK is not installed: {install_command('mcp')}") from error

    server: MCPServer[Any] = MCPServer(
        "gputop", instructions=INSTRUCTIONS, version=version, log_level="WARNING"
    )
    reading = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    def tool(about: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        def add(function: Callable[..., str]) -> Callable[..., str]:
            name = function.__name__
            server.tool(name, description=about, annotations=reading, structured_output=False)(
                _sentences(function, catalogue)
            )
            return function

        return add

    session_id = Annotated[
        str | None, Field(description="id of list_sessions; may be left out if there is one")
    ]
    page_at = Annotated[str | None, Field(description="next_cursor of the previous reply")]
    since = Annotated[float | None, Field(description="only from so many seconds after its start")]
    until = Annotated[float | None, Field(description="only until so many seconds after its start")]
    of_pids = Annotated[list[int] | None, Field(description="only of these processes")]

    @tool("The recordings that can be queried, each with its length, verdict and losses.")
    def list_sessions(query: str | None = None, limit: int = 20, cursor: page_at = None) -> str:
        return verdict_tools.list_sessions(catalogue, query, limit, cursor)

    @tool("Missing or doubtful data of a recording (failures first), its coverage, machine and GPUs.")
    def get_check(session: session_id = None) -> str:
        return verdict_tools.get_check(catalogue, session)

    @tool(
        "Why the GPU was idle: verdict, findings with chain, line, evidence, what was ruled out, advice, "
        "level; and what stays unexplained."
    )
    def get_causal_chains(
        session: session_id = None,
        from_s: since = None,
        to_s: until = None,
        pids: of_pids = None,
        min_level: Literal["proved", "strong", "hint"] = "hint",
        top_n: int = 5,
        cursor: page_at = None,
    ) -> str:
        return verdict_tools.get_causal_chains(
            catalogue, session, from_s, to_s, pids, min_level, top_n, cursor
        )

    @tool("CUDA calls by function, process, thread or line: count, bytes, total, p50, p95, p99, longest.")
    def get_trace_stats(
        session: session_id = None,
        from_s: since = None,
        to_s: until = None,
        pids: of_pids = None,
        group_by: Literal["api", "process", "thread", "line"] = "api",
        top_n: int = 10,
        cursor: page_at = None,
    ) -> str:
        return count_tools.get_trace_stats(catalogue, session, from_s, to_s, pids, group_by, top_n, cursor)

    @tool("Each process: its calls, context switches, time on a CPU, waiting for one, blocked; its parent.")
    def get_per_process_breakdown(
        session: session_id = None, pid: int | None = None, top_n: int = 10, cursor: page_at = None
    ) -> str:
        return count_tools.get_per_process_breakdown(catalogue, session, pid, top_n, cursor)

    @tool("Stacks with their time, most first: of CUDA calls, or of waits of calling threads between calls.")
    def get_stacks(
        session: session_id = None,
        kind: Literal["calls", "waits"] = "calls",
        api: str | None = None,
        pid: int | None = None,
        line: Annotated[str | None, Field(description="a part of a frame: train.py:12")] = None,
        top_n: int = 5,
        cursor: page_at = None,
    ) -> str:
        return count_tools.get_stacks(catalogue, session, kind, api, pid, line, top_n, cursor)

    @tool("Time in buckets: GPUs at work, idle by cause, unknown; threads on a CPU, queued, blocked.")
    def get_timeline(from_s: float, to_s: float, session: session_id = None, buckets: int = 40) -> str:
        return count_tools.get_timeline(catalogue, from_s, to_s, session, buckets)

    within = Annotated[float, Field(description="only of so many seconds from there on")]

    @tool(
        "CUDA graphs of a process in order: captures, instantiations, updates, launches; and what of that is "
        "not known."
    )
    def graph_lifecycle(
        pid: int,
        session: session_id = None,
        from_s: float = 0,
        window_s: within = graph_tools.WINDOW_S,
        cursor: page_at = None,
    ) -> str:
        return graph_tools.graph_lifecycle(catalogue, pid, session, from_s, window_s, cursor)

    @tool(
        "How often each executable CUDA graph of a process is launched, hot and cold ones, time in the calls."
    )
    def graph_frequency(
        pid: int,
        session: session_id = None,
        from_s: float = 0,
        window_s: within = graph_tools.WINDOW_S,
        cursor: page_at = None,
    ) -> str:
        return graph_tools.graph_frequency(catalogue, pid, session, from_s, window_s, cursor)

    @tool("Whether a change helped, step by step: two recordings, before and after.")
    def compare_sessions(before: str, after: str) -> str:
        return verdict_tools.compare_sessions(catalogue, before, after)

    @tool("NVML figures of each GPU at a moment (default: the end), with the reasons for missing ones.")
    def get_gpu_status(
        session: session_id = None, at_s: Annotated[float | None, Field(description="seconds")] = None
    ) -> str:
        if live is not None and session is None:
            return verdict_tools.gpu_page({"at": OwnText("now")}, live.gpus())
        return verdict_tools.get_gpu_status(catalogue, session, at_s)

    if live is not None:

        @tool(
            "Observes the CUDA programs of this machine that are this user's for some seconds (at most "
            f"{MOST_S:g}): a new session, and its verdict. get_gpu_status without a session tells of now."
        )
        def observe(seconds: float = 10, pids: of_pids = None) -> str:
            return live.observed(catalogue, seconds, pids)

    @tool(
        "One SELECT in DuckDB's SQL over a recording; gputop://schema lists the tables (sessions, processes, "
        "threads, calls, slices, stacks, gpu_samples, gaps, activities, findings). Times are integers of ns."
    )
    def run_sql(query: str, session: session_id = None, limit: int = 200, cursor: page_at = None) -> str:
        return count_tools.run_sql(catalogue, query, session, limit, cursor)

    if fleet is not None:

        @tool(
            "Many recordings together: what costs most GPU hours (overview, by cause, line, user or job), "
            "the findings, ranks that others wait for (stragglers), or one SELECT (sql) over sessions, "
            "findings, communicators, collectives, before_collectives, problems; their columns: "
            "SELECT * FROM (DESCRIBE findings). With job only that job's recordings count."
        )
        def query_fleet(
            action: Literal["overview", "findings", "stragglers", "sql"],
            by: Literal["cause", "line", "user", "job"] = "cause",
            job: str | None = None,
            query: str | None = None,
            limit: int = 50,
            cursor: page_at = None,
        ) -> str:
            return fleet(action, by, job, query, limit, cursor)

    _add_resources(server, catalogue)
    server.prompt("investigate", description="Find out why the GPU was idle, and check it.")(investigate)
    return server


def _add_resources(server: "MCPServer[Any]", catalogue: Catalogue) -> None:
    @server.resource("gputop://schema", mime_type="text/plain", description="The tables that run_sql reads.")
    def schema() -> str:
        return described()

    @server.resource("gputop://causes", mime_type="text/plain", description="All causes, by number.")
    def causes() -> str:
        return "".join(f"{one.number} {one.title}\n" for one in every())

    @server.resource(
        "gputop://causes/{number}",
        mime_type="text/markdown",
        description="One cause: symptoms and explanation.",
    )
    def cause(number: str) -> str:
        if number not in {one.number for one in every()}:
            raise GputopError("there is no such cause: gputop://causes lists them")
        return (files("gputop") / "query" / "causes" / f"{number}.md").read_text(encoding="utf-8")

    @server.resource(
        "session://{id}/report", mime_type="text/markdown", description="The whole explanation of a session."
    )
    def report(id: str) -> str:
        return _sentence(catalogue, lambda: _report(catalogue, id))


def _report(catalogue: Catalogue, id: str) -> str:
    """The report of a session, line by line marked as one text; its end may be cut."""
    lines = report_to_markdown(catalogue.get(id).report()).splitlines()
    kept: list[str] = []
    room = MOST_BYTES - len(BEGIN) - len(END) - 100
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            kept.append("(cut: get_causal_chains has the rest)")
            break
        kept.append(untagged(line))
    return f"{BEGIN}\n" + "\n".join(kept) + f"\n{END}\n"


def _sentences(function: Callable[..., str], catalogue: Catalogue) -> Callable[..., str]:
    """A tool whose errors are sentences for who asked."""

    @functools.wraps(function)
    def answer(*arguments: Any, **more: Any) -> str:
        return _sentence(catalogue, lambda: function(*arguments, **more))

    return answer


def _sentence(catalogue: Catalogue, ask: Callable[[], str]) -> str:
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return ask()
    except (CommandError, OutsideSessionError) as error:  # a sentence of gputop's own
        raise ToolError(str(error)) from None
    except GputopError as error:  # may quote what is in a file
        text = str(error)
        for id, path in catalogue.ids().items():
            text = text.replace(path, id)
        raise ToolError(marked(text)) from None
    except MemoryError:
        raise ToolError("the reply needs more memory than allowed: request less") from None
