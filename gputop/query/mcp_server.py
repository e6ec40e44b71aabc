"""The MCP server: names of the tools, resources and the prompt; the SDK does the rest."""

import functools
import inspect
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

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


# descriptions of arguments whose names and defaults do not show their meaning
_ARGUMENTS = {
    "session": "id of list_sessions; may be left out if there is one",
    "cursor": "next_cursor of the previous reply",
    "from_s": "only from so many seconds after its start",
    "to_s": "only until so many seconds after its start",
    "window_s": "only of so many seconds from there on",
    "at_s": "seconds",
    "pids": "only of these processes",
    "line": "a part of a frame: train.py:12",
}
Tool = Callable[..., str]


def server_of(
    catalogue: Catalogue, version: str, live: Live | None = None, fleet: Tool | None = None
) -> "MCPServer[Any]":
    """Return a server over these recordings, with ``live`` also the present, with ``fleet`` a lake.

    A tool is a function of the catalogue; assistants see its name, docstring and signature.

    Raises:
        GputopError: The SDK is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise GputopError(f"the MCP SDK is not installed: {install_command('mcp')}") from error

    server: MCPServer[Any] = MCPServer(
        "gputop", instructions=INSTRUCTIONS, version=version, log_level="WARNING"
    )
    reading = ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    @functools.wraps(verdict_tools.get_gpu_status)
    def get_gpu_status(catalogue: Catalogue, session: str | None = None, at_s: float | None = None) -> str:
        if live is not None and session is None:
            return verdict_tools.gpu_page({"at": OwnText("now")}, live.gpus())
        return verdict_tools.get_gpu_status(catalogue, session, at_s)

    def observe(catalogue: Catalogue, seconds: float = 10, pids: list[int] | None = None) -> str:
        assert live is not None  # else it is not offered
        return live.observed(catalogue, seconds, pids)

    observe.__doc__ = (
        "Observes the CUDA programs of this machine that are this user's for some seconds (at most "
        f"{MOST_S:g}): a new session, and its verdict. get_gpu_status without a session shows the present."
    )
    tools: tuple[Tool | None, ...] = (
        verdict_tools.list_sessions,
        verdict_tools.get_check,
        verdict_tools.get_causal_chains,
        count_tools.get_trace_stats,
        count_tools.get_per_process_breakdown,
        count_tools.get_stacks,
        count_tools.get_timeline,
        graph_tools.graph_lifecycle,
        graph_tools.graph_frequency,
        verdict_tools.compare_sessions,
        get_gpu_status,
        observe if live is not None else None,
        count_tools.run_sql,
        fleet,
    )
    for tool in filter(None, tools):
        about = " ".join((tool.__doc__ or "").split())
        answer = _answering(tool, catalogue)
        server.tool(tool.__name__, description=about, annotations=reading, structured_output=False)(answer)
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
    """The report of a session, marked as one text; its end may be cut."""
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


def _answering(tool: Tool, catalogue: Catalogue) -> Tool:
    """A tool without its catalogue argument, with described arguments and errors as sentences."""
    from pydantic import Field

    def answer(**arguments: Any) -> str:
        return _sentence(catalogue, lambda: tool(catalogue, **arguments))

    signature = inspect.signature(tool, eval_str=True)
    arguments = [
        one.replace(annotation=Annotated[one.annotation, Field(description=_ARGUMENTS[one.name])])
        if one.name in _ARGUMENTS
        else one
        for one in list(signature.parameters.values())[1:]
    ]
    answer.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return answer


def _sentence(catalogue: Catalogue, query: Callable[[], str]) -> str:
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return query()
    except (CommandError, OutsideSessionError) as error:  # a sentence of gputop's own
        raise ToolError(str(error)) from None
    except GputopError as error:  # may quote what is in a file
        text = str(error)
        for id, path in catalogue.ids().items():
            text = text.replace(path, id)
        raise ToolError(marked(text)) from None
    except MemoryError:
        raise ToolError("the reply needs more memory than allowed: request less") from None
