"""Everything about one server, with its decisions as annotations."""

from parts import (
    BAD,
    GOOD,
    NEUTRAL,
    SERVER,
    Query,
    any_is_bad,
    board,
    filled,
    limit,
    lines,
    marks_of_gateway,
    marks_of_server,
    number,
    of_server,
    per_minute,
    quantile,
    row,
    rows,
    timeline,
    words,
)

CALLS = "mcp_client_operation_duration_seconds"
YES = words(_0=("no", "transparent"), _1=("yes", NEUTRAL))
DOWN = words(_0=("up", GOOD), _1=("down", BAD))
DOWN_OR_CONNECTED = words(_0=("neither", "transparent"), _1=("down", BAD), _2=("connected", NEUTRAL))


def one_server():
    about = "Everything about one MCP server."
    there = board("Tidegate / One server", "tidegate-server", about, many_gateways=False, many_servers=False)
    there = filled(there, _now(), _history(), _attempts(), _queues(), _traffic())
    return marks_of_gateway(marks_of_server(there))


def _now():
    info, state = f"tidegate_server_info{{{SERVER}}}", of_server("state", by="max by (state)")
    return (
        row("Now"),
        number(
            "Announced",
            "The latch that TidegateServerDown alerts on.",
            "none",
            Query(f"max(tidegate_server:down:latch{{{SERVER}}})"),
            DOWN,
            any_is_bad(),
            width=6,
        ),
        number(
            "State",
            "What the gateway is doing about it.",
            "none",
            Query(f"{state} == 1", "{{state}}"),
            width=6,
            text=True,
        ),
        number(
            "Failed attempts",
            "In a row, early ends among them. Back at 0 when a connection has lasted.",
            "none",
            Query(of_server("failed_attempts")),
        ),
        number(
            "Age of the connection",
            "Of the open one; 0 when none is.",
            "s",
            Query(of_server("connection_age_seconds")),
        ),
        number(
            "In flight",
            "Requests of hosts that the server has not answered yet.",
            "none",
            Query(f"max(tidegate_requests_in_flight{{{SERVER}}})"),
        ),
        _since("Down since", "Start of the open episode.", "down_since"),
        _since("Next attempt", "End of the wait that runs.", "next_attempt"),
        _since("Last served", "The last moment at which a connection served.", "last_healthy"),
        _since("Last lasted", "The last time that a connection reached its threshold.", "lasted"),
        rows(
            "What it is",
            "From the configuration.",
            Query(info),
            ["instance", "job"],
            {"gateway": "Gateway", "server": "Server", "transport": "Transport", "protocol": "Protocol"},
            width=8,
            height=4,
        ),
    )


def _since(title, about, instant):
    query = f"{of_server(f'{instant}_timestamp_seconds')} * 1000 > 0"
    return number(title, about, "dateTimeFromNow", Query(query))


def _history():
    latch = f"max(tidegate_server:down:latch{{{SERVER}}})"
    return (
        row("Over time"),
        timeline(
            "Down and connected",
            "As announced by the alert, as decided by the engine, and whether there is a connection.",
            DOWN_OR_CONNECTED,
            Query(latch, "down, announced"),
            Query(of_server("down"), "down, engine"),
            Query(f"{of_server('connected')} * 2", "connected"),
            width=12,
            height=6,
        ),
        timeline(
            "Holds",
            "Why a plane of it is closed, so that its messages wait.",
            YES,
            Query(of_server("holds", by="max by (hold)"), "{{hold}}"),
            width=12,
            height=6,
        ),
        timeline(
            "States",
            "Exactly one at a time.",
            YES,
            Query(of_server("state", by="max by (state)"), "{{state}}"),
            width=24,
            height=8,
        ),
    )


def _attempts():
    ended, lived = "tidegate_server_connections_ended_total", "tidegate_server_epoch_duration_seconds"
    exchanges = "tidegate_server_exchanges_total"
    return (
        row("Attempts and connections"),
        lines(
            "Failed attempts in a row",
            "Down above the dashed threshold.",
            "none",
            Query(of_server("failed_attempts"), "failed attempts"),
            limit(of_server("down_after_attempts"), "down above"),
        ),
        lines(
            "Age of the open connection",
            "It has lasted when it reaches the dashed threshold.",
            "s",
            Query(of_server("connection_age_seconds"), "age"),
            limit(of_server("lasting_threshold_seconds"), "lasting"),
        ),
        lines(
            "Wait now running",
            "Before the next attempt; 0 when none runs.",
            "s",
            Query(of_server("backoff_seconds"), "wait"),
        ),
        lines(
            "Ends of connections",
            "By what ended them and whether they had lasted, per minute.",
            "cpm",
            Query(per_minute(ended, "reason, lasted"), "{{reason}}, lasted: {{lasted}}"),
            stacked=True,
        ),
        lines(
            "Attempts by outcome",
            "What became of dials and handshakes, per minute.",
            "cpm",
            Query(per_minute("tidegate_server_attempts_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Lives of connections",
            "From the handshake to the loss, of those that ended.",
            "s",
            Query(quantile(0.5, lived, SERVER), "half"),
            Query(quantile(0.9, lived, SERVER), "9 in 10"),
            limit(of_server("lasting_threshold_seconds"), "lasting"),
        ),
        lines(
            "Time away",
            "The longest since a connection last lasted. It is down when that reaches the dashed threshold.",
            "s",
            Query(of_server("away_seconds"), "away"),
            limit(of_server("down_after_seconds"), "down at"),
            width=12,
        ),
        lines(
            "Policy exchanges",
            "How they settled, per minute.",
            "cpm",
            Query(per_minute(exchanges, "outcome"), "{{outcome}}"),
            stacked=True,
            width=12,
        ),
    )


def _queues():
    def queue(name, about):
        each = "max by (kind)"
        return lines(
            f"{name.capitalize()} messages",
            about,
            "none",
            Query(of_server(f"{name}_messages", by=each), "{{kind}}s"),
            limit(of_server(f"{name}_messages_limit", by=each), "bound of {{kind}}s"),
        )

    held, kept = of_server("held_bytes"), of_server("kept_bytes")
    return (
        row("Messages that wait"),
        queue("held", "Waiting for a plane to open. Past the dashed bound they are refused or dropped."),
        queue("kept", "Kept over a loss for the next epoch. Past the dashed bound the newest is dropped."),
        lines(
            "Bytes that wait",
            "Of what is held and of what is kept.",
            "bytes",
            Query(held, "held"),
            Query(kept, "kept"),
        ),
        lines(
            "Age of the oldest",
            "Of what is held and of what is kept.",
            "s",
            Query(of_server("held_oldest_age_seconds"), "held"),
            Query(of_server("kept_oldest_age_seconds"), "kept"),
        ),
        lines(
            "Admitted after waiting",
            "By the queue they came from, per minute.",
            "cpm",
            Query(per_minute("tidegate_server_messages_flushed_total", "queue"), "{{queue}}"),
            stacked=True,
        ),
        lines(
            "Drops, refusals and repeats",
            "By reason and code, per minute. A repeat was answered as the first time.",
            "cpm",
            Query(per_minute("tidegate_server_messages_dropped_total", "reason"), "dropped: {{reason}}"),
            Query(per_minute("tidegate_server_messages_refused_total", "code"), "refused: {{code}}"),
            Query(per_minute("tidegate_server_messages_repeated_total", "server"), "repeated"),
            stacked=True,
        ),
    )


def _traffic():
    messages = f"sum by (direction, class) (rate(tidegate_server_messages_total{{{SERVER}}}[$__rate_interval]))"
    calls = f"sum by (mcp_method_name, error_type) (rate({CALLS}_count{{{SERVER}}}[$__rate_interval]))"
    return (
        row("Traffic and calls"),
        lines(
            "Messages",
            "Read from and written to the server, per second.",
            "mps",
            Query(messages, "{{direction}} {{class}}"),
        ),
        lines(
            "Calls",
            "Requests of hosts that were answered, per second.",
            "reqps",
            Query(calls, "{{mcp_method_name}} {{error_type}}"),
        ),
        lines(
            "Time of a call",
            "From a host's request to the server's answer.",
            "s",
            Query(quantile(0.5, CALLS), "half"),
            Query(quantile(0.99, CALLS), "99 in 100"),
        ),
    )
